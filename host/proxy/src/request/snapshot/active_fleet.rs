//! Active snapshot as the source of the fleet that health checks query.

use super::SnapshotCell;
use crate::fleet::pool::WorkerPool;
use crate::fleet::source::{ActiveFleet, FleetSource};

impl FleetSource for SnapshotCell {
    fn active(&self) -> ActiveFleet {
        let snapshot = self.load();
        ActiveFleet {
            generation: snapshot.generation,
            pools: snapshot.worker_pools().cloned().collect(),
        }
    }

    /// Enlarges the pool's budget, and wakes the requests in its queue.
    fn entered_service(&self, pool: &WorkerPool) {
        let snapshot = self.load();
        if let Some(pool) = snapshot.pool_named(&pool.name) {
            pool.queue.controller.worker_entered();
        }
    }
}
