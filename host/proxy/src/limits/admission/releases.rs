//! Events for which held requests of a pool are decided again: capacity that workers freed, at once or at the end of a
//! pause, and changes of policies, for which a sweep decides each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use routing::{CapacityEvent, DeferredEvent, ElsewherePace, PacedEvent, Worker, WorkerId};
use tokio::runtime::Handle;

use super::controller::AdmissionController;
use crate::observe::experiments::HeldRequests;

/// Capacity events so far.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Their number, which detects a release between a policy's verdict and the next wait. Changes of policies count
    /// too.
    pub(super) count: AtomicU64,
    pace: ElsewherePace,
}

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
    /// Notifies the queue of freed capacity.
    pub(crate) fn release(self: &Arc<Self>, release: CapacityEvent) {
        self.releases.count.fetch_add(1, Ordering::SeqCst);
        if self.len() > 0 {
            self.recompute_if_due();
            let PacedEvent { now, later } = self.releases.pace.apply(release, self.now_us());
            self.admit_ready(Some(now));
            if let Some(later) = later {
                self.defer(later);
            }
        }
    }

    /// Lets every held request be decided again once, in queue order and one at a time, after a change of policies.
    pub(crate) fn policies_changed(self: &Arc<Self>) {
        // First: a request that is under evaluation is marked, or sees another number. Only after `MOST_ROUNDS` a
        // change just before its next wait is found at its policy's time.
        self.releases.count.fetch_add(1, Ordering::SeqCst);
        if self.len() > 0 {
            self.recompute_if_due();
            self.queue().waiting.begin_sweep();
            self.admit_ready(None);
        }
    }

    /// Records that another pool takes a worker over, before it does. The worker's requests are those of this pool,
    /// except for `of_others`.
    pub(crate) fn moves(&self, worker: &Arc<Worker>, of_others: u64) {
        let mut capacity = self.capacity();
        if capacity.follows_workers() {
            // Before the requests are counted: one that ends meanwhile must not stay in the count.
            self.has_others.store(true, Ordering::SeqCst);
            capacity.moves(worker, of_others);
        }
    }

    /// Returns the requests of this pool at a worker that another pool took over.
    pub(crate) fn moved(&self, worker: WorkerId) -> u64 {
        match self.has_others.load(Ordering::SeqCst) {
            true => self.capacity().moved(worker),
            false => 0,
        }
    }

    /// Records that a lease of this pool on a worker has ended, before its permit is returned.
    pub(crate) fn lease_ended(&self, worker: Option<WorkerId>) {
        if let (Some(worker), true) = (worker, self.has_others.load(Ordering::SeqCst)) {
            self.capacity().lease_ended(worker);
        }
    }

    /// Recomputes the limits with workers that entered service, for the first time or again, and notifies the queue of
    /// their capacity.
    pub(crate) fn worker_entered(self: &Arc<Self>) {
        // Not only when it is due: no other event may follow.
        self.recompute_limits();
        self.release(CapacityEvent::anywhere());
    }

    /// Notifies the queue again at the end of the pause. At most one event is deferred.
    fn defer(self: &Arc<Self>, deferred: DeferredEvent) {
        let controller = Arc::clone(self);
        let decide = async move {
            let pause = deferred.at_us.saturating_sub(controller.now_us());
            tokio::time::sleep(Duration::from_micros(pause)).await;
            if controller.releases.pace.take_deferred(controller.now_us()) {
                controller.releases.count.fetch_add(1, Ordering::SeqCst);
                controller.admit_ready(Some(deferred.event));
            }
        };
        // Workers free capacity on the threads of the runtime. Elsewhere the requests wait for the next event.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(decide);
        }
    }
}

impl HeldRequests for AdmissionController {
    fn decide_again(self: Arc<Self>) {
        self.policies_changed();
    }
}
