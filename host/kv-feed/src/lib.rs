//! ZMQ subscriptions to the engines' KV events, with replay.
//!
//! One OS thread serves all sockets. Each feed follows one publisher: it asks for what was published before it came, asks
//! again for what it missed, and tells its sink when what the sink knows of a cache is no longer true. Everything a
//! publisher can do wrong ends in a reset of that cache, never in blocks claimed that are gone.
//!
//! It must not know what a sink does with events (there is an index behind it), nor where the list of feeds comes from.
//! No async runtime: `zmq` blocks, so it has a thread of its own.

mod delivery;
mod feeds;
mod probe;
mod reason;
mod recovery;
mod rejected;
mod sockets;
mod spec;
mod status;
mod subscription;
mod thread;

pub use feeds::{FeedError, KvFeeds, MAX_FEEDS};
pub use probe::{FeedProbe, FeedProbeError, probe};
pub use reason::{FeedCause, FeedReason};
pub use rejected::Rejected;
pub use spec::{Endpoint, FeedSink, FeedSpec, ResetReason, StoreSpec};
pub use status::{FeedState, FeedStatus, StoreStatus};
