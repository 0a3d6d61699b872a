//! Sweep of a pool's queue: once other policies may decide its held requests, each of them is decided again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::controller::AdmissionController;
use crate::observe::experiments::HeldRequests;

/// Decision about one request for a sweep. Its drop lets the next one be decided. It must not be dropped under the lock
/// of the queue.
#[derive(Debug)]
pub(super) struct SweepDecision(Arc<AdmissionController>);

impl SweepDecision {
    /// Creates the guard of a decision that the queue has begun.
    pub(super) fn new(controller: &Arc<AdmissionController>) -> Self {
        Self(Arc::clone(controller))
    }
}

impl Drop for SweepDecision {
    fn drop(&mut self) {
        self.0.queue().waiting.end_sweep_decision();
        self.0.admit_ready(None);
    }
}

impl AdmissionController {
    /// Lets every held request be decided again once, in queue order and one at a time, after a change of policies.
    pub(crate) fn policies_changed(self: &Arc<Self>) {
        // First: a request that is under evaluation is either marked or sees another number.
        self.releases.count.fetch_add(1, Ordering::SeqCst);
        if self.len() > 0 {
            self.recompute_if_due();
            self.queue().waiting.begin_sweep();
            self.admit_ready(None);
        }
    }
}

impl HeldRequests for AdmissionController {
    fn decide_again(self: Arc<Self>) {
        self.policies_changed();
    }
}
