//! Sources of the exchange: the router's pools, workers and state.

use std::sync::Arc;

use replicas::RouterState;
use routing::{HeldSummary, Worker, WorkerId};

/// The active fleet of this router.
pub trait FleetSource: Send + 'static {
    /// Pool of the fleet.
    type Pool: SharedPool;

    /// Returns the number of the active configuration.
    fn generation(&self) -> u64;

    /// Returns the pools of the active configuration.
    fn pools(&self) -> Vec<Self::Pool>;

    /// Returns the state of this router.
    fn state(&self) -> RouterState;

    /// Returns a hash of the configuration file.
    fn config_hash(&self) -> String;
}

/// A pool whose loads are shared.
pub trait SharedPool: Send + Sync {
    /// Returns the name.
    fn name(&self) -> &str;

    /// Returns the workers.
    fn workers(&self) -> Vec<Arc<Worker>>;

    /// Returns the number of requests in the pool's own queue.
    fn queued(&self) -> usize;

    /// Calls `visit` with each worker that own held requests wait for, and their summary.
    fn summarize_waiters(&self, visit: &mut dyn FnMut(WorkerId, &HeldSummary));

    /// Replaces the number of requests in the queues of the other routers.
    fn set_queued_elsewhere(&self, requests: usize);

    /// Notifies the pool's queue that another router freed capacity at a worker.
    fn freed_elsewhere(&self, worker: WorkerId);
}
