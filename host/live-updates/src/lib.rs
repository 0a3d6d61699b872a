//! Live updates of the admin pages, without HTTP.
//!
//! One task, the [`Sampler`], reads the numbers of the fleet each second: for the history, and for the viewers of the
//! event stream. It makes the events once for all viewers, and none without viewers. A [`Viewer`] has the chunks of one
//! stream. A new viewer wakes the sampler, whose next update then has full events too.
//!
//! The [`ChangeLog`] has the latest changes of the router, which the viewers get as well.

mod change_log;
mod hub;
mod sampler;
mod viewer;
mod worker_feed;

pub use change_log::{ChangeLog, unix_seconds};
pub use hub::{LiveHub, RefusedStream, STREAMS};
pub use sampler::{LiveSources, Sampler};
pub use viewer::Viewer;
