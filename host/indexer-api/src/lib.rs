//! The prefix index as an HTTP service, so that any gateway, proxy or engine plugin can ask it.
//!
//! The API is that of Mooncake's conductor: the routes, validations and messages of its third generation (August 2026, msgpack),
//! the JSON of the second, the answers of the first on request, and what its documentation promised beside. `README.md` tells
//! the routes and where this service does more than upstream's.
//!
//! From the bottom: `document` (a body as fields), `field` (a field as what it should be), `service`, `profile` and `request`
//! (bodies as values), `directory` and `registry` (who is registered), `lookup` (the index is asked), `answer`, `views` and
//! `cache_route` (answers), `wire` and `indexer` (HTTP).
//!
//! It must not know how events are followed: [`Follow`] does that.

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
pub use follow::{Follow, FollowError, Followed, FollowedFeed, FollowedWorker};
pub use host_names::HostNames;
pub use indexer::{Indexer, IndexerParts};
pub use profile::HashProfile;
pub use service::{Service, ServiceKind};
