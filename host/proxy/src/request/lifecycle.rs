//! Lifecycle of one request from the match of its route to its end.
//!
//! It is accounted for exactly once, also if the client disconnects and everything is dropped.
//!
//! It lives as long as an answer is relayed, which may be hours. It must not hold the snapshot, nor the policies of the
//! route: a reload may have replaced them long ago.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};
use inference_api::Tail;

use crate::base::in_place;
use crate::base::label::{OUTCOMES, Outcome};
use crate::base::readiness::Readiness;
use crate::base::reply::Refusal;
use crate::dispatch::inference_request::{DispatchProgress, InferenceRequest};
use crate::dispatch::pool_state::PoolState;
use crate::fleet::pool::Member;
use crate::limits::admission::Permit;
use crate::limits::clients::RateLimitGuard;
use crate::observe::access::AccessHandle;
use crate::observe::experiments::Enrollment;
use crate::observe::spans::{SpanEnd, SpanHandle};
use crate::observe::stages::RequestStage;
use crate::record::{ResponseUsage, Trace};
use crate::request::meter::{MeterStart, RequestMeter};

/// Guard that counts the request's outcome and duration. If it is dropped without an outcome, the client has left, or
/// the router has cut the request.
#[derive(Debug)]
pub(crate) struct RequestLifecycle {
    pool: Arc<PoolState>,
    id: HeaderValue,
    meter: RequestMeter,
    /// Enrollment of a request whose route has several arms.
    enrollment: Option<Box<Enrollment>>,
    records: RequestRecords,
    /// Rate-limit reservation of a known client.
    reservation: Option<RateLimitGuard>,
    /// Reservation of a client that is charged for nothing, or for the output only.
    stay: Option<RateLimitGuard>,
    /// Share of the pool's capacity that the request occupies.
    permit: Option<Permit>,
    causes: EndCauses,
    over: bool,
}

/// Causes for which the router itself ends a request.
#[derive(Debug)]
struct EndCauses {
    readiness: Readiness,
    /// Deadline of the whole request.
    deadline: Option<Instant>,
}

/// Records of a request in the logs.
#[derive(Debug, Default)]
struct RequestRecords {
    /// Record in the decision log, where the request is recorded.
    trace: Option<Arc<Trace>>,
    /// Record in the access log.
    access: AccessHandle,
    /// Notes for the request's trace.
    spans: SpanHandle,
}

impl RequestLifecycle {
    /// Begins the lifecycle. It is on the heap, because it is moved from the request to the answer.
    pub(crate) fn begin(
        pool: Arc<PoolState>,
        id: HeaderValue,
        readiness: Readiness,
        start: MeterStart,
    ) -> Box<Self> {
        pool.metrics.in_flight.inc();
        in_place::boxed(|| Self {
            pool,
            id,
            meter: RequestMeter::start(start),
            enrollment: None,
            records: RequestRecords::default(),
            reservation: None,
            stay: None,
            permit: None,
            causes: EndCauses {
                readiness,
                deadline: None,
            },
            over: false,
        })
    }

    /// Attaches the client's rate-limit reservation, which is held until the request ends.
    pub(crate) fn of_client(&mut self, reservation: Option<RateLimitGuard>) {
        self.reservation = reservation;
    }

    /// Holds the client's reservation as long as this lives. The response was charged when it was made. The tokens of
    /// the answer are neither counted nor charged, unless [`count_tokens_after`](Self::count_tokens_after) or
    /// [`charge_part`](Self::charge_part) is called.
    pub(crate) fn hold(&mut self, stay: Option<RateLimitGuard>) {
        self.stay = stay;
        self.meter.counts_tokens = false;
    }

    /// Returns `true` if the tokens of the answer count in the metrics.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.meter.counts_tokens
    }

    /// Counts the tokens of the answer after all, except for the first `before` output tokens, which earlier answers
    /// had. The others are charged to the client, whose prompt was charged when the response was made.
    pub(crate) fn count_tokens_after(&mut self, before: u64) {
        self.meter.count_tokens_after(before);
    }

    /// Counts at least `known` output tokens of the response, because answers by its id had so many. Returns `false` if
    /// that is not plausible, and nothing is counted.
    pub(crate) fn raise_output(&mut self, known: u64, tail: &Tail) -> bool {
        let reservation = self.reservation.as_mut();
        let is_plausible = reservation.is_none_or(|reservation| reservation.raise_output(known, tail));
        if is_plausible {
            self.meter.raise_output(known);
        }
        is_plausible
    }

    /// Returns the output tokens of an answer by a response's id, which has not been read to its end.
    pub(crate) fn output_by_id(&mut self, tail: &Tail) -> u64 {
        let stay = self.stay.as_mut();
        stay.map_or_else(|| tail.tokens_so_far(), |stay| stay.output_by_id(tail))
    }

    /// Counts so many output tokens of an answer by a response's id, which has not been read to its end.
    pub(crate) fn charge_part(&mut self, new: u64) {
        self.meter.raise_output(new);
        if let Some(stay) = &mut self.stay {
            stay.charge_part(new);
        }
    }

    /// Returns the output tokens that the client is charged so far. `None` where clients need no key.
    pub(crate) fn charged_output(&self) -> Option<u64> {
        self.reservation.as_ref().map(RateLimitGuard::output)
    }

    /// Returns the rate-limit reservation of its client.
    pub(crate) fn reservation(&mut self) -> Option<&mut RateLimitGuard> {
        self.reservation.as_mut()
    }

    /// Sets the deadline by which the request must end.
    pub(crate) fn must_end(&mut self, deadline: Option<Instant>) {
        self.causes.deadline = deadline;
    }

    /// Records whether a worker was sent the request.
    pub(crate) fn was_sent(&mut self, progress: &DispatchProgress) {
        if let Some(reservation) = &mut self.reservation
            && progress.is_sent.load(Ordering::Relaxed)
        {
            reservation.sent();
        }
    }

    /// Follows the stages of the request while it is being placed.
    pub(crate) fn placing(&mut self, request: &Arc<InferenceRequest>) {
        self.meter.placing(request);
    }

    /// Holds the admission permit of a placed request until its end, and the pool of its answer. The request itself is
    /// not needed any more.
    pub(crate) fn admit(&mut self, permit: Option<Permit>, pool: &Arc<PoolState>) {
        self.permit = permit;
        self.pool = Arc::clone(pool);
        self.meter.placed();
    }

    /// Records the time of a stage between the dispatch and the worker's answer.
    pub(crate) fn took(&mut self, stage: RequestStage, time: Duration) {
        self.meter.set(stage, time);
        self.records.access.took(stage, time);
        if let (RequestStage::Connect, Some(trace)) = (stage, &self.records.trace) {
            trace.connected(time);
        }
    }

    /// Attaches the request's enrollment in an experiment.
    pub(crate) fn join(&mut self, enrollment: Option<Enrollment>) {
        self.enrollment = enrollment.map(Box::new);
    }

    /// Attaches the record that its end is written to.
    pub(crate) fn record(&mut self, trace: Option<Arc<Trace>>) {
        self.records.trace = trace;
    }

    /// Attaches the request's record in the access log.
    pub(crate) fn log_access(&mut self, access: AccessHandle) {
        self.records.access = access;
    }

    /// Attaches the notes for the request's trace.
    pub(crate) fn trace_spans(&mut self, spans: SpanHandle) {
        self.records.spans = spans;
    }

    /// Returns the request's record in the access log.
    pub(crate) fn access(&self) -> &AccessHandle {
        &self.records.access
    }

    /// Returns the request's record.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.records.trace.as_deref()
    }

    /// Returns the request's `x-request-id`.
    pub(crate) fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Returns `true` if the drain period is over, and the request is to end.
    pub(crate) fn is_cutting(&self) -> bool {
        self.causes.readiness.is_cutting()
    }

    pub(crate) fn pool(&self) -> &PoolState {
        &self.pool
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.pool.workers.members[at]
    }

    /// Records the status of the answer to the client.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        if let Some(reservation) = &mut self.reservation {
            reservation.answered(status);
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.answered(status);
        }
        if let Some(trace) = &self.records.trace {
            trace.answered(status.as_u16());
        }
        self.meter.answered(status);
        self.records.access.status(status);
        self.records.spans.status(status);
    }

    /// Records the first byte of a streamed answer.
    pub(crate) fn first_token(&mut self, now: Instant) {
        let after = self.meter.after(now);
        self.meter.first_token(now);
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.first_token(after);
        }
        if let Some(trace) = &self.records.trace {
            trace.first_token(after);
        }
        self.records.access.first_token(after, now);
        self.records.spans.first_token(after);
    }

    /// Records a piece of the answer that passed, of that many bytes. `tail` has it. `streamed`: the time of a piece of
    /// a stream.
    pub(crate) fn chunk(&mut self, bytes: usize, tail: &Tail, streamed: Option<Instant>) {
        if let Some(reservation) = &mut self.reservation {
            reservation.seen(tail);
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.chunk();
        }
        if let Some(now) = streamed {
            self.meter.chunk(now, tail);
        }
        self.records.access.chunk(bytes, tail, streamed);
    }

    /// Records that the answer was read to its end.
    pub(crate) fn read(&mut self, tail: &Tail) {
        if let (Some(cached), true) = (tail.cached_tokens(), self.meter.counts_tokens) {
            let reported = tail.prompt_tokens().unwrap_or_default();
            let metrics = &self.pool.metrics.prompt_tokens;
            metrics.reported_prompt.inc_by(reported);
            metrics.cached.inc_by(cached);
        }
        self.meter.read(tail);
        if let Some(reservation) = &mut self.reservation {
            reservation.read(tail);
        }
        if let (Some(stay), true) = (&mut self.stay, self.meter.counts_tokens) {
            stay.read_output(tail, self.meter.output_tokens());
        }
        if let Some(permit) = &self.permit {
            permit.served(tail.tokens());
        }
        if let Some(enrollment) = &mut self.enrollment {
            enrollment.read(tail);
        }
        self.records.access.read(tail);
        self.records.spans.read(tail);
        if let Some(trace) = &self.records.trace {
            trace.read(ResponseUsage {
                prompt: tail.prompt_tokens(),
                cached: tail.cached_tokens(),
                output: tail.output_tokens(),
                events: tail.events(),
            });
        }
    }

    /// Accounts for a request that no worker answers. Returns the refusal.
    pub(crate) fn refused(mut self: Box<Self>, refusal: Refusal) -> Refusal {
        if let Refusal::Relayed(answer) = &refusal {
            self.answered(answer.status());
        }
        self.refuse(&refusal);
        refusal
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.meter.answered(refusal.status());
        if let (Some(trace), false) = (self.trace(), matches!(refusal, Refusal::Relayed(_))) {
            trace.refused(refusal.status().as_u16(), refusal.code());
        }
        self.records.access.refusal(refusal);
        self.records.spans.refusal(refusal);
        self.finish(refusal.outcome());
    }

    /// Records the outcome. Only the first call counts.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.over, true) {
            let metrics = &self.pool.metrics;
            metrics.ended(outcome);
            metrics.in_flight.dec();
            let spans = &self.records.spans;
            let facts = spans.is_on().then(|| SpanEnd {
                pool: &self.pool.workers.name,
                model: self.meter.model(),
                stages: self.meter.stages(),
                is_explained: self.trace().is_some_and(Trace::is_explained),
            });
            let traced = spans.end(outcome, facts);
            let after = self.meter.end(metrics, outcome, traced);
            if let (Some(permit), true) = (&self.permit, outcome != Outcome::Complete) {
                permit.served_part(self.meter.output_tokens());
            }
            self.permit = None;
            self.stay = None;
            if let Some(reservation) = self.reservation.take() {
                reservation.end(outcome);
            }
            if let Some(enrollment) = self.enrollment.take() {
                enrollment.end(outcome, after);
            }
            if let Some(trace) = self.records.trace.take() {
                trace.ended(OUTCOMES[outcome as usize].1, after);
            }
            self.records.access.end(outcome, after);
        }
    }
}

impl Drop for RequestLifecycle {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if self.is_cutting() {
            // The answer may have begun, and was cut with its connection.
            return match self.meter.is_answered() {
                true => self.finish(Outcome::ShutDown),
                false => self.refuse(&Refusal::ShuttingDown),
            };
        }
        // The router ends a request whose client takes nothing of its answer.
        let deadline = self.causes.deadline;
        let is_overdue = deadline.is_some_and(|deadline| deadline <= Instant::now());
        self.finish(if is_overdue {
            Outcome::RequestTimeout
        } else {
            Outcome::ClientLeft
        });
    }
}
