//! Lifecycle of one request from the match of its route to its end, and its load lease on a worker.
//!
//! Both are accounted for exactly once, also if the client disconnects and everything is dropped.
//!
//! They live as long as an answer is relayed, which may be hours. They must not hold the snapshot: it would keep every
//! policy alive that a reload has long replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};
use inference_api::Tail;
use routing::{CapacityEvent, LoadLease, WorkerId};

use crate::base::label::{OUTCOMES, Outcome};
use crate::fleet::pool::Member;
use crate::limits::admission::{AdmissionController, Permit};
use crate::limits::clients::RateLimitGuard;
use crate::observe::events::LifecycleEvents;
use crate::observe::experiments::Enrollment;
use crate::record::{ResponseUsage, Trace};
use crate::request::snapshot::PoolState;

/// Guard that counts the request's outcome and duration. If it is dropped without an outcome, the client has left.
#[derive(Debug)]
pub(crate) struct RequestLifecycle {
    pool: Arc<PoolState>,
    id: HeaderValue,
    arrived: Instant,
    /// Enrollment of a request whose route has several arms.
    enrollment: Option<Box<Enrollment>>,
    /// Record in the decision log, where the request is recorded.
    trace: Option<Arc<Trace>>,
    /// Rate-limit reservation of a known client.
    visit: Option<RateLimitGuard>,
    /// Reservation of a client that is charged for nothing.
    stay: Option<RateLimitGuard>,
    /// Share of the pool's capacity that the request occupies.
    permit: Option<Permit>,
    /// Deadline of the whole request.
    deadline: Option<Instant>,
    over: bool,
}

impl RequestLifecycle {
    pub(crate) fn begin(pool: Arc<PoolState>, id: HeaderValue, arrived: Instant) -> Self {
        Self {
            pool,
            id,
            arrived,
            enrollment: None,
            trace: None,
            visit: None,
            stay: None,
            permit: None,
            deadline: None,
            over: false,
        }
    }

    /// Attaches the client's rate-limit reservation, which is held until the request ends.
    pub(crate) fn of_client(&mut self, visit: Option<RateLimitGuard>) {
        self.visit = visit;
    }

    /// Holds the client's reservation as long as this lives. Its response was charged when it was made.
    pub(crate) fn hold(&mut self, stay: Option<RateLimitGuard>) {
        self.stay = stay;
    }

    /// Returns the rate-limit reservation of its client.
    pub(crate) fn visit(&mut self) -> Option<&mut RateLimitGuard> {
        self.visit.as_mut()
    }

    /// Sets the deadline by which the request must end.
    pub(crate) fn must_end(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Records that a worker was sent the request.
    pub(crate) fn sent(&mut self) {
        if let Some(visit) = &mut self.visit {
            visit.sent();
        }
    }

    /// Holds the admission permit until the request ends.
    pub(crate) fn admit(&mut self, permit: Option<Permit>) {
        self.permit = permit;
    }

    /// Attaches the request's enrollment in an experiment.
    pub(crate) fn join(&mut self, enrollment: Option<Enrollment>) {
        self.enrollment = enrollment.map(Box::new);
    }

    /// Attaches the record that its end is written to.
    pub(crate) fn record(&mut self, trace: Option<Arc<Trace>>) {
        self.trace = trace;
    }

    /// Returns the request's record.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// Returns the request's `x-request-id`.
    pub(crate) fn id(&self) -> &HeaderValue {
        &self.id
    }

    pub(crate) fn pool(&self) -> &PoolState {
        &self.pool
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.pool.workers.members[at]
    }

    /// Records the status of the answer to the client.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        if let Some(visit) = &mut self.visit {
            visit.answered(status);
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.answered(status);
        }
        if let Some(trace) = &self.trace {
            trace.answered(status.as_u16());
        }
    }

    /// Records the first byte of a streamed answer.
    pub(crate) fn first_token(&mut self) {
        let after = self.arrived.elapsed();
        self.pool.metrics.first_token.observe(after.as_secs_f64());
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.first_token(after);
        }
        if let Some(trace) = &self.trace {
            trace.first_token(after);
        }
    }

    /// Records a piece of the answer that passed. `tail` has it.
    pub(crate) fn chunk(&mut self, tail: &Tail) {
        if let Some(visit) = &mut self.visit {
            visit.seen(tail);
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.chunk();
        }
    }

    /// Records that the answer was read to its end.
    pub(crate) fn read(&mut self, tail: &Tail) {
        if let Some(cached) = tail.cached_tokens() {
            self.pool.metrics.cached_tokens.inc_by(cached);
        }
        if let Some(permit) = &self.permit {
            permit.served(tail.tokens_so_far());
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.read(tail);
        }
        if let Some(trace) = &self.trace {
            trace.read(ResponseUsage {
                prompt: tail.prompt_tokens(),
                cached: tail.cached_tokens(),
                output: tail.output_tokens(),
                events: tail.events(),
            });
        }
    }

    /// Records the outcome. Only the first call counts.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.over, true) {
            let metrics = &self.pool.metrics;
            let after = self.arrived.elapsed();
            metrics.ended(outcome);
            metrics.duration.observe(after.as_secs_f64());
            self.permit = None;
            self.stay = None;
            if let Some(visit) = self.visit.take() {
                visit.end(outcome);
            }
            if let Some(enrollment) = self.enrollment.take() {
                enrollment.end(outcome, after);
            }
            if let Some(trace) = self.trace.take() {
                trace.ended(OUTCOMES[outcome as usize].1, after);
            }
        }
    }
}

impl Drop for RequestLifecycle {
    fn drop(&mut self) {
        // The router ends a request whose client takes nothing of its answer.
        let is_overdue = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        self.finish(if is_overdue {
            Outcome::RequestTimeout
        } else {
            Outcome::ClientLeft
        });
    }
}

/// Lease on a worker's load that notifies the pool's queue when it is returned.
#[derive(Debug)]
pub(crate) struct LoadGuard {
    lease: Option<LoadLease>,
    first_token: Option<Instant>,
    queue: Arc<AdmissionController>,
    /// Capacity that the lease frees when it is returned.
    release: CapacityEvent,
    /// Receiver of lifecycle events, where a policy wants them.
    trail: Option<Arc<LifecycleEvents>>,
}

impl LoadGuard {
    pub(crate) fn new(
        lease: LoadLease,
        worker: WorkerId,
        queue: Arc<AdmissionController>,
        trail: Option<Arc<LifecycleEvents>>,
    ) -> Self {
        Self {
            lease: Some(lease),
            first_token: None,
            queue,
            release: CapacityEvent::at(worker),
            trail,
        }
    }

    /// Makes a guard for a request that the worker computes nothing for.
    pub(crate) fn unbooked(worker: WorkerId, queue: Arc<AdmissionController>) -> Self {
        Self {
            lease: None,
            first_token: None,
            queue,
            release: CapacityEvent::at(worker),
            trail: None,
        }
    }

    /// Returns the lifecycle events, to be ended by a caller that knows more than the lease does.
    pub(crate) fn trail(&self) -> Option<Arc<LifecycleEvents>> {
        self.trail.clone()
    }

    /// Records the dispatch.
    pub(crate) fn dispatched(&self) {
        if let Some(trail) = &self.trail {
            trail.dispatched();
        }
    }

    /// Records that the answer was read to its end.
    pub(crate) fn finished(&self) {
        if let Some(trail) = &self.trail {
            trail.finished();
        }
    }

    /// Records that the worker failed.
    pub(crate) fn failed(&self) {
        if let Some(trail) = &self.trail {
            trail.failed();
        }
    }

    /// Records the first token, `ttft` after the dispatch.
    pub(crate) fn first_token(&mut self, ttft: Duration) {
        self.prompt_took(ttft);
        self.first_token = Some(Instant::now());
        // The prompt is computed: requests that wait for that are evaluated again.
        self.queue.release(self.release);
    }

    /// Records that the prompt is computed, where that was the whole of the work.
    pub(crate) fn computed(mut self, ttft: Duration) {
        self.prompt_took(ttft);
    }

    fn prompt_took(&mut self, ttft: Duration) {
        if let Some(lease) = &mut self.lease {
            lease.first_token(ttft);
        }
        if let Some(trail) = &self.trail {
            trail.first_token(ttft);
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
            self.queue.release(self.release);
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
        // The load is released first, so that requests that are evaluated again see the lower load.
        self.lease = None;
        self.queue.release(self.release);
    }
}
