//! Pool of the active snapshot, as routers of one fleet share it.

use std::sync::Arc;

use routing::{CapacityEvent, HeldSummary, Worker, WorkerId};

use crate::dispatch::pool_state::PoolState;
use crate::request::snapshot::Snapshot;

/// Handle of a pool whose loads and held requests are shared with other routers.
#[derive(Debug, Clone)]
pub struct PoolShare(Arc<PoolState>);

impl Snapshot {
    /// Returns the pools, in the order of the configuration.
    #[must_use]
    pub fn pool_shares(&self) -> Vec<PoolShare> {
        self.pools.iter().cloned().map(PoolShare).collect()
    }
}

impl PoolShare {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.workers.name
    }

    /// Returns the workers, in the order of the configuration.
    #[must_use]
    pub fn workers(&self) -> Vec<Arc<Worker>> {
        let members = self.0.workers.members.iter();
        members.map(|member| Arc::clone(&member.worker)).collect()
    }

    /// Returns the number of requests in this router's queue of the pool.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.0.queue.controller.len()
    }

    /// Calls `visit` with each worker that held requests of this router wait for, and their summary.
    pub fn summarize_waiters(&self, visit: impl FnMut(WorkerId, &HeldSummary)) {
        self.0.queue.controller.summarize_waiters(visit);
    }

    /// Replaces the number of requests in the other routers' queues of the pool.
    pub fn set_queued_elsewhere(&self, requests: usize) {
        self.0.queue.controller.set_elsewhere(requests);
    }

    /// Re-evaluates held requests that wait for a worker at which another router freed capacity.
    pub fn freed_elsewhere(&self, worker: WorkerId) {
        let mut members = self.0.workers.members.iter();
        if let Some(member) = members.find(|member| member.worker.id() == worker) {
            let first = member.worker.load().others().first_order();
            let release = CapacityEvent::elsewhere_at(worker).up_to(first);
            self.0.queue.controller.release(release);
        }
    }
}
