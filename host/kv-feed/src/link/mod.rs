//! Connections to publishers: one I/O thread for all of them, and a queue of notes per feed.
//!
//! This module does not interpret messages. Memory is bounded before reading: by frame and message limits (`zmtp`), by
//! each feed's queue, and by the total of all feeds. A feed without memory is not read from, so TCP slows its
//! publisher down.

mod address;
mod budget;
mod connection;
mod dial;
mod mailbox;
mod pause;
mod reader;
mod stream;

pub use address::AddressError;
pub(crate) use budget::MemoryCharge;
pub(crate) use mailbox::{FeedLink, FeedNotifier, LinkNote, ReceivedMessage};
pub use reader::LinkError;
pub(crate) use reader::LinkReader;
