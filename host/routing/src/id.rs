//! Identities. Small integers, so that they can be columns of a matrix.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names one worker for as long as it is part of the fleet; never reused within one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u32);

/// Gives out the ids of one run; clones give out of the same.
#[derive(Debug, Clone, Default)]
pub struct WorkerIds(Arc<AtomicU32>);

impl WorkerIds {
    /// Returns a new id. Ids count up from 0.
    #[must_use]
    pub fn next(&self) -> WorkerId {
        WorkerId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A data-parallel rank of a worker: each rank has a KV cache of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DpRank(pub u16);

/// Counts the configurations applied since start; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker-{}", self.0)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
