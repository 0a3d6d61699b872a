//! The prefix index as an HTTP service for gateways, proxies and engine plugins.
//!
//! The API is that of Mooncake's conductor. Routes, validation and messages are those of its third generation (August
//! 2026, MessagePack). JSON is the second generation's; `?shape=` selects the answers of the first. `README.md`
//! documents the routes and the additions of this service.
//!
//! Modules, bottom up: `document` (body as fields), `field` (typed fields), `service`, `profile` and `request` (bodies
//! as values), `directory` and `registry` (registrations), `lookup` (index queries), `answer`, `views` and
//! `cache_route` (response bodies), `wire` and `indexer` (HTTP).
//!
//! The crate does not depend on how events are followed: [`FeedFollower`] is the interface.

mod access;
mod answer;
mod cache_route;
mod directory;
mod document;
mod field;
mod follow;
mod host_names;
mod indexer;
mod lookup;
mod profile;
mod refusal;
mod registry;
mod request;
mod service;
mod views;
mod wire;

pub use access::{ApiKey, IndexerAccess, SentKey};
pub use block_hash::Algorithm;
pub use follow::{FeedFollower, FollowError, FollowedFeed, FollowedSource, FollowedWorker};
pub use host_names::HostNames;
pub use indexer::{Indexer, IndexerParts};
pub use profile::HashProfile;
pub use service::{Service, ServiceKind};
