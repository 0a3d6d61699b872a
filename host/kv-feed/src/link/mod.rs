//! Connections to publishers: one I/O thread for all of them, and a queue of notes for each feed.
//!
//! Nothing here knows what a message means. What is read is bounded before it is read: by each frame and message
//! (`zmtp`), by what waits in one feed's queue, and by what all feeds hold together. A feed without room is not read from, so
//! that TCP holds its publisher back.

mod address;
mod budget;
mod connection;
mod dial;
mod mailbox;
mod pause;
mod reader;
mod stream;

pub use address::AddressError;
pub(crate) use budget::Charge;
pub(crate) use mailbox::{Bell, Link, Note, Received};
pub use reader::LinkError;
pub(crate) use reader::Reader;
