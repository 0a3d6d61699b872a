//! Client of the admin pages of one or several routers.

mod client;
mod error;
mod events;
mod printable;
mod routers;

pub use self::client::{AdminClient, in_a_path};
pub use self::error::RemoteError;
pub use self::events::{EventStream, StreamEvent};
pub use self::printable::{printable, printable_lines};
pub use self::routers::{RouterAnswer, RouterSet};
