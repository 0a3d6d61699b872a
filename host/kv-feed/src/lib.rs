//! ZMQ subscriptions to the engines' KV events, with replay.
//!
//! One thread reads from all sockets (`link`), within limits in bytes and time; another decodes what was read and steps the
//! feeds. Each feed follows one publisher: it asks for what was published before it came, asks again for what it missed, and
//! resets its sink when what the sink knows of a cache is no longer true. Everything a publisher can do wrong ends in a
//! closed connection or a reset of that cache, never in blocks claimed that are gone, nor in memory without bound.
//!
//! ZeroMQ's protocol is read by this crate itself (`zmtp`): libzmq bounds a frame, and neither a message that does not end nor
//! what it has queued. See `host/adr/0025-own-zmtp-reader.md`.
//!
//! It must not know what a sink does with events (there is an index behind it), nor where the list of feeds comes from.

mod delivery;
mod feeds;
mod link;
mod payload;
mod probe;
mod reason;
mod recovery;
mod rejected;
mod slice;
mod spec;
mod status;
mod subscription;
mod thread;
mod zmtp;

pub use feeds::{FeedError, KvFeeds, MAX_FEEDS};
pub use link::{AddressError, LinkError};
pub use probe::{FeedProbe, FeedProbeError, probe};
pub use reason::{FeedCause, FeedReason};
pub use rejected::Rejected;
pub use spec::{Endpoint, FeedSink, FeedSpec, ResetReason, StoreSpec};
pub use status::{FeedState, FeedStatus, StoreStatus};
pub use zmtp::{CurveKeys, Fault, FeedLimits};
