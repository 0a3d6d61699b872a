//! Source of the answers to a policy's queries.

use std::sync::Arc;

use routing::{Worker, WorkerId};

use crate::matches::PrefixMatches;

/// Answers to the queries of a call that differ between the server and a simulation.
///
/// It owns what it reads: a component's host functions outlive any borrow.
pub trait QuerySource: Send + Sync + 'static {
    /// Looks up the request's prompt for these workers. Without a prompt it clears `matches`.
    fn find_matches(&self, ids: &[WorkerId], matches: &mut PrefixMatches);

    /// Returns a worker of the pool.
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>>;

    /// Returns the held requests that wait for each worker: see [`ahead`](routing::DecisionQueries::ahead).
    fn ahead(&self, ids: &[WorkerId], most: &[u32]) -> Vec<u32>;

    /// Returns the first value of a header that policies may read.
    fn header(&self, name: &str) -> Option<String>;

    /// Returns the request's model.
    fn model(&self) -> &str;

    /// Returns the request's path.
    fn path(&self) -> &str;
}
