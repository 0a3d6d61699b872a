//! Limits of a budget: set with a configuration, twice a second from the workers, and with each request that ends at a
//! worker out of service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use routing::CapacityEvent;

use super::capacity::Capacity;
use super::controller::{AdmissionController, UNCOUNTED};

/// Interval in microseconds at which limits that depend on the workers are recomputed.
const RECOMPUTE_EVERY_US: u64 = 500_000;

impl AdmissionController {
    /// Activates budgets, and notifies the queue: the new configuration may have room for requests that wait. Held
    /// requests keep the workers they target until they are decided again.
    pub(crate) fn activate(self: &Arc<Self>, capacity: Capacity) {
        let follows = capacity.follows_workers();
        self.has_budget.store(capacity.is_any(), Ordering::SeqCst);
        self.capacity().replace(capacity);
        let next = if follows { 0 } else { u64::MAX };
        self.recompute_at_us.store(next, Ordering::SeqCst);
        self.recompute_limits();
        self.release(CapacityEvent::anywhere());
    }

    /// Recomputes the limits if they depend on the workers and are old. Returns `true` if they are recomputed.
    pub(super) fn recompute_if_due(&self) -> bool {
        let at = self.recompute_at_us.load(Ordering::Relaxed);
        let is_due = at != u64::MAX && self.now_us() >= at;
        if is_due {
            self.recompute_limits();
        }
        is_due
    }

    /// Recomputes the limits as [`Self::recompute_if_due`] does, and admits the queued requests that fit then: no other
    /// event may follow.
    pub(super) fn recompute_and_admit(self: &Arc<Self>) {
        if self.recompute_if_due() && self.is_blocked.load(Ordering::SeqCst) {
            self.admit_ready(None);
        }
    }

    /// Recomputes the limits from the current state of the workers.
    pub(super) fn recompute_limits(&self) {
        // Locked until the limits are set: those of a replaced capacity must not overwrite the new ones.
        let mut capacity = self.capacity();
        self.budget.set_limits(capacity.limits(self.budget.used()));
        self.has_others.store(capacity.has_others(), Ordering::SeqCst);
        drop(capacity);
        let next = self.now_us().saturating_add(RECOMPUTE_EVERY_US);
        // Limits that do not depend on the workers keep this value.
        let later = |at: u64| (at != u64::MAX).then_some(next);
        let _ = self
            .recompute_at_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Returns a permit's share of the budget. An unused permit frees nothing that a policy could not have had before.
    pub(super) fn give_back(self: &Arc<Self>, tokens: u64, was_used: bool) {
        if tokens == UNCOUNTED {
            return;
        }
        if self.has_others.load(Ordering::Relaxed) {
            // The room of a request that ends at a worker out of service is not another worker's: the limit falls
            // first.
            let capacity = self.capacity();
            self.budget.set_limits(capacity.with_running(self.budget.used()));
        }
        self.budget.give(tokens);
        // The worker's load was released just before, when only the budget blocked requests.
        if was_used && self.is_blocked.load(Ordering::SeqCst) {
            self.release(CapacityEvent::anywhere());
        } else if self.len() > 0 {
            self.admit_ready(None);
        }
    }
}
