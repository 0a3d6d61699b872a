//! Interface to the KV event feeds: the rest of the program follows publishers into the index.

use std::sync::Arc;

use routing::{DpRank, StoreId, Worker, WorkerId};
use thiserror::Error;

use crate::service::Service;

/// Follows registered publishers, and lists those that the router follows itself.
pub trait FeedFollower: Send + Sync {
    /// Starts following an engine or a store. The index holds its blocks under the returned, unused id.
    ///
    /// # Errors
    /// Returns an error if the publisher cannot be followed; nothing has changed then.
    fn follow(&self, service: &Service) -> Result<FollowedSource, FollowError>;

    /// Stops following. The index drops the source's blocks.
    fn unfollow(&self, followed: FollowedSource);

    /// Returns the router's own workers that publish events.
    fn workers(&self) -> Arc<[FollowedWorker]>;

    /// Returns `true` if all feeds of an engine are live, so that the index is current. Policies see its cache as
    /// unknown otherwise.
    fn is_current(&self, engine: WorkerId) -> bool;

    /// Returns the state of each feed, such as `live`. A worker may have several feeds.
    fn feed_states(&self) -> Vec<(FollowedSource, &'static str)>;
}

/// Id of a followed publisher in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FollowedSource {
    /// An engine, with a cache of its own.
    Engine(WorkerId),
    /// A store that engines share.
    Store(StoreId),
}

/// A worker of the router.
#[derive(Debug, Clone)]
pub struct FollowedWorker {
    /// The worker.
    pub worker: Arc<Worker>,
    /// Publishers: one, or one for each data-parallel rank.
    pub feeds: Box<[FollowedFeed]>,
}

/// A publisher of a worker's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedFeed {
    /// Endpoint that publishes the events.
    pub endpoint: Box<str>,
    /// Endpoint that replays missed events; empty for none.
    pub replay: Box<str>,
    /// Rank of events that do not name one.
    pub rank: DpRank,
}

/// Error of following a publisher.
#[derive(Debug, Error)]
pub enum FollowError {
    /// The endpoint cannot be connected to.
    #[error("failed to connect to {endpoint}: {why}")]
    Endpoint {
        /// The endpoint.
        endpoint: Box<str>,
        /// The cause.
        why: String,
    },
    /// The limit of followed publishers is reached.
    #[error("failed to follow another publisher")]
    NoRoom(#[source] Box<dyn std::error::Error + Send + Sync>),
}
