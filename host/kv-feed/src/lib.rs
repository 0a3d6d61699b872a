//! Subscriptions to the engines' KV events over ZMQ, with replay of missed messages.
//!
//! The I/O thread (`link`) reads from all sockets, within limits in bytes and time. The feeds' thread decodes the
//! messages and steps the feeds. Each feed follows one publisher. It requests a replay of earlier messages at the
//! start and of missed ones later. It resets its sink when the known state of a cache becomes invalid. Any fault of a
//! publisher ends in a closed connection or a reset of that cache, never in wrong blocks or unbounded memory.
//!
//! The crate has a ZMTP implementation of its own (`zmtp`). libzmq bounds a frame, but neither an endless message nor
//! its queues. See `host/adr/0025-own-zmtp-reader.md`.
//!
//! The crate depends neither on the index behind the sink nor on the source of the feed list.

mod delivery;
mod feeds;
mod link;
mod payload;
mod probe;
mod reason;
mod recovery;
mod rejected;
mod seed;
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
pub use seed::{FeedContents, FeedPosition, FeedSeed, ReadContents};
pub use spec::{Endpoint, FeedSink, FeedSpec, ResetReason, StoreSpec};
pub use status::{FeedState, FeedStatus, StoreStatus};
pub use zmtp::{CurveKeys, Fault, FeedLimits};
