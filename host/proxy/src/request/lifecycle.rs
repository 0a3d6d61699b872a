//! Lifecycle of one request from the match of its route to its end, and its load lease on a worker.
//!
//! Both are accounted for exactly once, also if the client disconnects and everything is dropped.
//!
//! They live as long as an answer is relayed, which may be hours, and must not know the snapshot: it would keep
//! every policy alive that a reload has long replaced.

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

/// Counts the request's outcome and duration. Dropped without an outcome, the client has left.
#[derive(Debug)]
pub(crate) struct RequestLifecycle {
    pool: Arc<PoolState>,
    id: HeaderValue,
    arrived: Instant,
    /// Of a request whose route has several arms.
    enrollment: Option<Box<Enrollment>>,
    /// Where it is recorded.
    trace: Option<Arc<Trace>>,
    /// Of a client that is known.
    visit: Option<RateLimitGuard>,
    /// The stay of a client that is charged for nothing.
    stay: Option<RateLimitGuard>,
    /// What it takes of its pool.
    permit: Option<Permit>,
    /// The end of its whole time.
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

    /// It is a client's, whose limits it uses until it is over.
    pub(crate) fn of_client(&mut self, visit: Option<RateLimitGuard>) {
        self.visit = visit;
    }

    /// It is a client's, and lasts as long as this does: what it is answered was charged when it was made.
    pub(crate) fn hold(&mut self, stay: Option<RateLimitGuard>) {
        self.stay = stay;
    }

    /// The stay of the client it is of.
    pub(crate) fn visit(&mut self) -> Option<&mut RateLimitGuard> {
        self.visit.as_mut()
    }

    /// It must be over by then.
    pub(crate) fn must_end(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// A worker was asked.
    pub(crate) fn sent(&mut self) {
        if let Some(visit) = &mut self.visit {
            visit.sent();
        }
    }

    /// It is let in, until it is over.
    pub(crate) fn admit(&mut self, permit: Option<Permit>) {
        self.permit = permit;
    }

    /// It is one of an arm's.
    pub(crate) fn join(&mut self, enrollment: Option<Enrollment>) {
        self.enrollment = enrollment.map(Box::new);
    }

    /// How it ends is recorded.
    pub(crate) fn record(&mut self, trace: Option<Arc<Trace>>) {
        self.trace = trace;
    }

    /// Its record.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// The request's `x-request-id`.
    pub(crate) fn id(&self) -> &HeaderValue {
        &self.id
    }

    pub(crate) fn pool(&self) -> &PoolState {
        &self.pool
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.pool.workers.members[at]
    }

    /// The client is answered with that status.
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

    /// The first byte of a streamed answer came.
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

    /// A piece of the answer passed; `tail` has it.
    pub(crate) fn chunk(&mut self, tail: &Tail) {
        if let Some(visit) = &mut self.visit {
            visit.seen(tail);
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.chunk();
        }
    }

    /// The answer was read to its end.
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

    /// It is over; only the first call counts.
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
        // A client that takes nothing of its answer is left by the router.
        let is_overdue = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        self.finish(if is_overdue {
            Outcome::RequestTimeout
        } else {
            Outcome::ClientLeft
        });
    }
}

/// A lease on a worker's load that tells the pool's queue when it is given back.
#[derive(Debug)]
pub(crate) struct LoadGuard {
    lease: Option<LoadLease>,
    first_token: Option<Instant>,
    queue: Arc<AdmissionController>,
    /// What it frees, whenever it does.
    release: CapacityEvent,
    /// Where a policy wants to be told.
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

    /// For a request that the worker computes nothing for.
    pub(crate) fn unbooked(worker: WorkerId, queue: Arc<AdmissionController>) -> Self {
        Self {
            lease: None,
            first_token: None,
            queue,
            release: CapacityEvent::at(worker),
            trail: None,
        }
    }

    /// What it leaves behind, to be ended by who knows more than the booking does.
    pub(crate) fn trail(&self) -> Option<Arc<LifecycleEvents>> {
        self.trail.clone()
    }

    /// It is sent.
    pub(crate) fn dispatched(&self) {
        if let Some(trail) = &self.trail {
            trail.dispatched();
        }
    }

    /// The answer was read to its end.
    pub(crate) fn finished(&self) {
        if let Some(trail) = &self.trail {
            trail.finished();
        }
    }

    /// The worker failed at it.
    pub(crate) fn failed(&self) {
        if let Some(trail) = &self.trail {
            trail.failed();
        }
    }

    /// The first token came, `ttft` after the dispatch.
    pub(crate) fn first_token(&mut self, ttft: Duration) {
        self.prompt_took(ttft);
        self.first_token = Some(Instant::now());
        // Its prompt is computed: whoever waits for that is asked again.
        self.queue.release(self.release);
    }

    /// The prompt is computed, and that was all there was to do.
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

    /// When the first token should come, counted from the dispatch; none where that is no matter.
    pub(crate) fn expected_ttft(&self) -> Option<Duration> {
        self.lease.as_ref()?.expected_ttft()
    }

    /// The first token should have come, where it cannot be seen.
    pub(crate) fn take_for_computed(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.take_for_computed();
            self.queue.release(self.release);
        }
    }

    /// The answer is complete. How many tokens it had is asked only where the first was seen.
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
        // First the load, so that whoever is asked again sees it gone.
        self.lease = None;
        self.queue.release(self.release);
    }
}
