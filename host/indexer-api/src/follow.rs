//! What the service needs of the rest of the program: somebody who follows publishers into the index.

use std::sync::Arc;

use routing::{DpRank, StoreId, Worker, WorkerId};
use thiserror::Error;

use crate::service::Service;

/// Follows the publishers that are registered here, and knows those that the router follows anyway.
pub trait Follow: Send + Sync {
    /// Begins to follow an engine, or a store; the index holds what it says under the id answered, which nobody had before.
    ///
    /// # Errors
    /// Where it cannot be followed; nothing changed then.
    fn follow(&self, service: &Service) -> Result<Followed, FollowError>;

    /// Ends that. What the index holds of it goes.
    fn unfollow(&self, followed: Followed);

    /// The router's own workers whose events are followed.
    fn workers(&self) -> Arc<[FollowedWorker]>;

    /// Whether what the index holds of an engine is current: all its feeds are live. Policies see it as unknown otherwise.
    fn is_current(&self, engine: WorkerId) -> bool;

    /// How each feed is, such as `live`. A worker may have several.
    fn states(&self) -> Vec<(Followed, &'static str)>;
}

/// Under which id the index holds what somebody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Followed {
    /// An engine, with a cache of its own.
    Engine(WorkerId),
    /// A store that engines share.
    Store(StoreId),
}

/// One of the router's workers.
#[derive(Debug, Clone)]
pub struct FollowedWorker {
    /// The worker.
    pub worker: Arc<Worker>,
    /// Its publishers: one, or one for each of its ranks.
    pub feeds: Box<[FollowedFeed]>,
}

/// One publisher of a worker's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedFeed {
    /// Where its events come from.
    pub endpoint: Box<str>,
    /// Where they are asked for again; empty for nowhere.
    pub replay: Box<str>,
    /// The rank that events are of which do not tell theirs.
    pub rank: DpRank,
}

/// Why a publisher cannot be followed.
#[derive(Debug, Error)]
pub enum FollowError {
    /// Its endpoint cannot be connected to.
    #[error("failed to connect to {endpoint}: {why}")]
    Endpoint {
        /// Which.
        endpoint: Box<str>,
        /// What is wrong with it.
        why: String,
    },
    /// There is no room for another one.
    #[error("failed to follow another publisher")]
    NoRoom(#[source] Box<dyn std::error::Error + Send + Sync>),
}
