//! Pools and clients of the active snapshot, as routers of one fleet share them.

use std::num::NonZeroU32;
use std::sync::Arc;

use routing::{BudgetUse, CapacityEvent, HeldSummary, TenantService, Worker, WorkerId};

use crate::dispatch::pool_state::PoolState;
use crate::limits::clients::ClientShare;
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

    /// Returns the clients that have limits.
    #[must_use]
    pub fn client_share(&self) -> ClientShare {
        self.clients.share()
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

    /// Returns this router's use of the pool's budgets, without that of workers that have left the pool.
    #[must_use]
    pub fn budget(&self) -> BudgetUse {
        self.0.queue.controller.shared_use()
    }

    /// Replaces the number of requests in the other routers' queues of the pool, and their use of its budgets.
    pub fn set_elsewhere(&self, queued: usize, budget: BudgetUse) {
        self.0.queue.controller.set_elsewhere(queued, budget);
    }

    /// Divides the pool's budgets by so many routers, because what the others use is not known. 1 is the whole budget.
    pub fn divide_budgets(&self, routers: NonZeroU32) {
        self.0.queue.controller.divide_budgets(routers);
    }

    /// Returns the number of the queue's beginning. The counters of a pool that was removed and added again begin at 0.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.0.queue.controller.life
    }

    /// Calls `visit` with each tenant that has a counter.
    pub fn visit_tenants(&self, visit: impl FnMut(TenantService<'_>)) {
        self.0.queue.controller.visit_tenants(visit);
    }

    /// Charges a tenant for requests that other routers admitted.
    pub fn serve_elsewhere(&self, tenant: &Arc<str>, share: f64) {
        self.0.queue.controller.serve_elsewhere(tenant, share);
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
