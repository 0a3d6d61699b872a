//! The commands that show and change running routers.

mod drain;
mod feeds;
mod fleet_table;
pub mod policies;
mod policy_problems;
mod reach;
mod reload;
mod requests;
mod screen;
mod status;
mod top;
mod trials;
mod watch;
mod workers;

pub use self::drain::{drain, resume};
pub use self::feeds::feeds;
pub use self::reload::reload;
pub use self::requests::{newest_request, requests};
pub use self::status::status;
pub use self::top::top;
pub use self::trials::trials;
pub use self::workers::workers;
