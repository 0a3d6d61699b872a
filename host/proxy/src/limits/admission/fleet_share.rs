//! State of a controller that the routers of a fleet share: budgets, queue and service of tenants.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use routing::{BudgetUse, HeldSummary, TenantService, WorkerId};

use super::controller::AdmissionController;

impl AdmissionController {
    /// Returns the use of the budgets by this router, for the others; nothing while none is configured.
    ///
    /// Requests at workers that have left the pool are not in it: the others have no more room for them.
    pub(crate) fn shared_use(&self) -> BudgetUse {
        let used = self.budget.used();
        match self.has_others.load(Ordering::Relaxed) {
            true => self.capacity().without_leavers(used),
            false => used,
        }
    }

    /// Replaces the queue entries and the use of the budgets of other routers. If they use less than before, queued
    /// requests may have room.
    pub(crate) fn set_elsewhere(self: &Arc<Self>, queued: usize, budget: BudgetUse) {
        self.elsewhere.store(queued, Ordering::Relaxed);
        let has_less = self.budget.set_elsewhere(budget);
        if has_less && self.is_blocked.load(Ordering::SeqCst) {
            self.admit_ready(None);
        }
    }

    /// Divides the budgets by so many routers, because what the others use is not known. 1 is the whole budget.
    pub(crate) fn divide_budgets(self: &Arc<Self>, routers: NonZeroU32) {
        if self.capacity().divide(routers) {
            self.recompute_limits();
            self.admit_ready(None);
        }
    }

    /// Calls `visit` with each worker that held requests wait for, and their summary.
    pub(crate) fn summarize_waiters(&self, visit: impl FnMut(WorkerId, &HeldSummary)) {
        self.queue().waiting.summarize_waiters(visit);
    }

    /// Calls `visit` with each tenant that has a counter.
    pub(crate) fn visit_tenants(&self, visit: impl FnMut(TenantService<'_>)) {
        self.queue().waiting.visit_tenants(visit);
    }

    /// Charges a tenant for requests that other routers admitted.
    pub(crate) fn serve_elsewhere(&self, tenant: &Arc<str>, share: f64) {
        self.queue().waiting.serve_elsewhere(tenant, share);
    }
}
