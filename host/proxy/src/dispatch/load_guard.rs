//! Load lease of one attempt on a worker.
//!
//! It is returned exactly once, also if the client disconnects and everything is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{CapacityEvent, LoadLease, WorkerId};

use crate::limits::admission::AdmissionController;
use crate::observe::events::LifecycleEvents;

/// Lease on a worker's load that notifies the pool's queue when it is returned.
#[derive(Debug)]
pub(crate) struct LoadGuard {
    lease: Option<LoadLease>,
    first_token: Option<Instant>,
    queue: Arc<AdmissionController>,
    /// Capacity that the lease frees when it is returned.
    release: CapacityEvent,
    /// Receiver of lifecycle events, where a policy subscribes to them.
    lifecycle_events: Option<Arc<LifecycleEvents>>,
}

impl LoadGuard {
    pub(crate) fn new(
        lease: LoadLease,
        worker: WorkerId,
        queue: Arc<AdmissionController>,
        lifecycle_events: Option<Arc<LifecycleEvents>>,
    ) -> Self {
        Self {
            lease: Some(lease),
            first_token: None,
            queue,
            release: CapacityEvent::at(worker),
            lifecycle_events,
        }
    }

    /// Makes a guard for a request that the worker computes nothing for.
    pub(crate) fn unbooked(worker: WorkerId, queue: Arc<AdmissionController>) -> Self {
        Self {
            lease: None,
            first_token: None,
            queue,
            release: CapacityEvent::at(worker),
            lifecycle_events: None,
        }
    }

    /// Returns the lifecycle events, to be ended by a caller that has more details than the lease.
    pub(crate) fn lifecycle_events(&self) -> Option<Arc<LifecycleEvents>> {
        self.lifecycle_events.clone()
    }

    /// Records the dispatch.
    pub(crate) fn dispatched(&self) {
        if let Some(lifecycle_events) = &self.lifecycle_events {
            lifecycle_events.dispatched();
        }
    }

    /// Records that the answer was read to its end.
    pub(crate) fn finished(&self) {
        if let Some(lifecycle_events) = &self.lifecycle_events {
            lifecycle_events.finished();
        }
    }

    /// Records that the worker failed.
    pub(crate) fn failed(&self) {
        if let Some(lifecycle_events) = &self.lifecycle_events {
            lifecycle_events.failed();
        }
    }

    /// Records the first token, `ttft` after the dispatch.
    pub(crate) fn first_token(&mut self, ttft: Duration) {
        self.prompt_took(ttft);
        self.first_token = Some(Instant::now());
        // The prompt is computed: requests that wait for that are evaluated again.
        self.queue.release(self.freed());
    }

    /// Records that the prompt is computed, where that was the whole of the work.
    pub(crate) fn computed(mut self, ttft: Duration) {
        self.prompt_took(ttft);
    }

    /// Returns the freed capacity. It is for requests up to the first that another router holds for the worker.
    fn freed(&self) -> CapacityEvent {
        let first = self
            .lease
            .as_ref()
            .map(|lease| lease.load().others().first_order());
        self.release.up_to(first.unwrap_or(f64::INFINITY))
    }

    fn prompt_took(&mut self, ttft: Duration) {
        if let Some(lease) = &mut self.lease {
            lease.first_token(ttft);
        }
        if let Some(lifecycle_events) = &self.lifecycle_events {
            lifecycle_events.first_token(ttft);
        }
    }

    /// Returns the expected time to the first token, counted from the dispatch. `None` where that is not needed.
    pub(crate) fn expected_ttft(&self) -> Option<Duration> {
        self.lease.as_ref()?.expected_ttft()
    }

    /// Takes the prompt for computed at the expected time, where the first token cannot be seen.
    pub(crate) fn take_for_computed(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.take_for_computed();
            self.queue.release(self.freed());
        }
    }

    /// Records how many tokens of the prompt the engine did not compute. `cached` is called only where it is of use.
    pub(crate) fn prompt_cached(&mut self, cached: impl FnOnce() -> Option<u64>) {
        if let Some(lease) = &mut self.lease {
            lease.prompt_cached(cached);
        }
    }

    /// Records the complete answer. `tokens`, its number of tokens, is called only where the first token was seen.
    pub(crate) fn decoded(&self, tokens: impl FnOnce() -> Option<u64>) {
        if let (Some(lease), Some(first)) = (&self.lease, self.first_token)
            && let Some(tokens) = tokens()
        {
            lease.decoded(tokens, first.elapsed());
        }
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        let freed = self.freed();
        // The load is released first, so that requests that are evaluated again see the lower load.
        if self.lease.take().is_some() {
            self.queue.lease_ended(self.release.worker());
        }
        self.queue.release(freed);
    }
}
