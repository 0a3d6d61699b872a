//! Holder: the identity of one KV cache.

use routing::{DpRank, WorkerId};

/// Holder: one KV cache. Every data-parallel rank of a worker has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The worker.
    pub worker: WorkerId,
    /// Data-parallel rank; 0 if there is only one.
    pub rank: DpRank,
}
