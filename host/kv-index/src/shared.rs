//! The index as many threads see it. The only file of this crate with a lock.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use routing::{BlockEvent, DpRank, WorkerId};

use crate::core::Core;
use crate::count::{Applied, IndexLimits, IndexStats};
use crate::query::{PrefixQuery, WorkerMatch};

/// One KV cache: every data-parallel rank of a worker has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The worker.
    pub worker: WorkerId,
    /// Its rank; 0 where there is only one.
    pub rank: DpRank,
}

/// A handle on the index; clones share it. Readers see each event's effect whole or not at all.
#[derive(Debug, Clone)]
pub struct SharedPrefixIndex {
    core: Arc<RwLock<Core>>,
}

impl SharedPrefixIndex {
    /// An empty index.
    #[must_use]
    pub fn new(limits: IndexLimits) -> Self {
        Self {
            core: Arc::new(RwLock::new(Core::new(limits))),
        }
    }

    /// Takes in one event of one cache; answers what became of its blocks.
    pub fn apply(&self, holder: Holder, event: &BlockEvent) -> Applied {
        self.write().apply(holder, event)
    }

    /// Forgets what one cache holds. Takes the same short time whatever that is.
    pub fn clear(&self, holder: Holder) -> Applied {
        self.write().clear(holder)
    }

    /// Forgets what all ranks of a worker hold. Later events of that worker would be indexed again: stop its feed first.
    pub fn remove_worker(&self, worker: WorkerId) -> Applied {
        self.write().remove_worker(worker)
    }

    /// How much of the prompt each worker holds: `out` is replaced by one match per worker, in the order asked.
    pub fn matches(&self, query: &PrefixQuery<'_>, workers: &[WorkerId], out: &mut Vec<WorkerMatch>) {
        self.read().matches(query, workers, out);
    }

    /// Blocks that all ranks of a worker hold.
    #[must_use]
    pub fn held_blocks(&self, worker: WorkerId) -> u64 {
        self.read().held_blocks(worker)
    }

    /// The index at this moment.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        self.read().stats()
    }

    /// A thread that panicked inside the lock left at worst one event half applied: blocks it did not get to are missing,
    /// and serving goes on.
    fn write(&self) -> RwLockWriteGuard<'_, Core> {
        self.core.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Core> {
        self.core.read().unwrap_or_else(PoisonError::into_inner)
    }
}
