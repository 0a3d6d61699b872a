//! One attempt: takes a load lease, sends the request, and records the result in the worker's health.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Response};
use placement::WorkerChoice;
use routing::{LoadLease, WorkerLoad};
use tokio::time::timeout;
use tracing::{debug, warn};
use worker_client::{OutgoingRequest, SendError, SendTimeouts, WorkerBody};

use crate::base::idle_timeout::IdleTimeoutLimits;
use crate::base::label::FailureKind;
use crate::base::request_id::RequestId;
use crate::base::timeouts::RequestLimits;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::Member;
use crate::limits::retries;
use crate::observe::events::{LifecycleEvents, RequestFacts};
use crate::request::context::RequestContext;
use crate::request::lifecycle::LoadGuard;

/// A worker's answer, with everything that lives as long as its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<WorkerBody>,
    pub(crate) booking: LoadGuard,
    /// Index into the pool's members.
    pub(crate) member: usize,
    /// Token of this attempt for the worker's health. The worker's health changes with the first byte of the body.
    pub(crate) dispatch: AttemptToken,
    pub(crate) dispatched: Instant,
    /// Tokens of the prompt that the worker holds according to the index. `None` where the tokens or the matches are
    /// unknown.
    pub(crate) matched: Option<u32>,
    /// Set if the response reports the decision in its headers.
    pub(crate) is_told: bool,
    /// Header value that names the deciding policy, where it is reported.
    pub(crate) decided_by: Option<HeaderValue>,
    /// Idle timeouts of the rest of the request.
    pub(crate) silence: IdleTimeoutLimits,
}

/// Parameters of one upstream attempt.
#[derive(Debug)]
pub(crate) struct AttemptSpec {
    pub(crate) seat: WorkerChoice,
    pub(crate) booking: LoadGuard,
    pub(crate) body: Bytes,
    /// Data-parallel rank that the request is pinned to.
    pub(crate) rank: Option<u16>,
    /// `true` for a leg, whose handshake serves once.
    pub(crate) once: bool,
    pub(crate) limits: SendTimeouts,
    pub(crate) silence: IdleTimeoutLimits,
}

impl AttemptSpec {
    /// Makes the parameters for the whole of a request.
    pub(crate) fn whole(request: &RequestContext, seat: WorkerChoice) -> Self {
        let limits = match &request.pool().pd {
            // One worker runs both legs, which are otherwise limited leg by leg.
            Some(pd) => RequestLimits {
                connect_timeout: pd.spec.connect_timeout,
                first_byte_timeout: pd.spec.prefill_timeout + pd.spec.first_token_timeout,
                idle_timeout: pd.spec.idle_timeout,
                ..request.pool().limits
            },
            None => request.pool().limits,
        };
        Self {
            seat,
            booking: book_prompt(request, seat),
            body: request.body.clone(),
            rank: pinned_rank(request, seat),
            once: false,
            limits: SendTimeouts {
                connect: limits.connect_timeout,
                first_byte: limits.first_byte_timeout,
            },
            silence: IdleTimeoutLimits {
                first_byte: limits.first_token_timeout.unwrap_or(limits.first_byte_timeout),
                idle: limits.idle_timeout,
                deadline: request.deadline(),
            },
        }
    }
}

/// Returns the worker's rank, where several ranks share a URL.
pub(crate) fn pinned_rank(request: &RequestContext, seat: WorkerChoice) -> Option<u16> {
    let worker = &request.pool().workers.members[seat.member].worker;
    worker.spec().rank.map(|rank| rank.0)
}

/// Sends the request and waits for the head of the answer.
pub(crate) async fn send(request: &RequestContext, mut asking: AttemptSpec) -> Result<Answer, SendError> {
    let member = &request.pool().workers.members[asking.seat.member];
    let link = &member.link;
    let outgoing = OutgoingRequest {
        method: &request.method,
        target: &request.target,
        headers: &request.headers,
        rank: asking.rank,
        body: &asking.body,
        once: asking.once || request.crashes.count() > 0,
    };
    debug!(
        seq = request.seq,
        worker = &*member.worker.spec().name,
        matched = asking.seat.matched,
        "sending a request"
    );
    link.metrics.attempts.inc();
    let dispatch = link.begin();
    request.is_sent.store(true, Ordering::Relaxed);
    asking.booking.dispatched();
    let dispatched = Instant::now();
    let is_told = request.snapshot.decision_headers;
    let answer = link.upstream.forward(outgoing, asking.limits);
    // An answer in one piece hides its first token; a leg has rules of its own.
    let hides_first_token = !request.stream && !asking.once;
    let outcome = match asking.booking.expected_ttft() {
        Some(expected) if hides_first_token => {
            wait_with_assumed_prefill(answer, expected, &mut asking.booking).await
        }
        _ => answer.await,
    };
    match outcome {
        Ok(response) => {
            let (status, headers) = (response.status(), response.headers());
            if status.is_server_error() {
                request.pool().workers.server_error(member, dispatch, status);
            }
            if let Some(after_ms) = retries::retry_after_ms(status, headers) {
                link.health.note(&format!("it answered a request with {status}"));
                link.health.passed_over(after_ms, link.now_ms());
            }
            Ok(Answer {
                is_told,
                decided_by: is_told.then(|| request.decided_by.header()).flatten(),
                response,
                booking: asking.booking,
                member: asking.seat.member,
                dispatch,
                dispatched,
                matched: request.prompt.as_ref().and(asking.seat.matched),
                silence: asking.silence,
            })
        }
        Err(error) => {
            asking.booking.failed();
            link.metrics.failed(FailureKind::from(&error));
            let is_crash = matches!(error, SendError::Closed(_) | SendError::KeptClosed(_));
            // Legs have rules of their own.
            let rests = if is_crash && !asking.once {
                request.crashes.add(asking.seat.member, dispatch);
                false
            } else {
                !error.is_blameless() && request.pool().workers.failed(member, dispatch, &error)
            };
            report(member, &request.id, &error, rests);
            Err(error)
        }
    }
}

/// Waits for an answer whose first token cannot be seen. Its prompt is taken for computed at the expected time.
async fn wait_with_assumed_prefill<T>(
    answer: impl Future<Output = T>,
    expected: Duration,
    booking: &mut LoadGuard,
) -> T {
    let mut answer = pin!(answer);
    if let Ok(early) = timeout(expected, &mut answer).await {
        return early;
    }
    booking.take_for_computed();
    answer.await
}

/// Logs that a worker failed to answer.
pub(crate) fn report(member: &Member, id: &HeaderValue, error: &SendError, rests: bool) {
    let worker = &*member.worker.spec().name;
    let held_back = || member.link.failure_log.pass();
    let (id, chain) = (RequestId(id), error as &dyn std::error::Error);
    if rests {
        warn!(worker, request = %id, error = chain, "a worker failed to answer and is ejected");
    } else if !error.may_go_elsewhere()
        && let Some(held_back) = held_back()
    {
        warn!(worker, request = %id, error = chain, held_back, "a worker failed to answer");
    } else {
        debug!(worker, request = %id, error = chain, "an attempt failed");
    }
}

/// Books a prompt at the worker that is to compute it.
pub(crate) fn book_prompt(request: &RequestContext, seat: WorkerChoice) -> LoadGuard {
    let pool = request.pool();
    let prompt = request.prompt_tokens();
    let matched = seat.matched.unwrap_or(0);
    if request.prompt.is_some() {
        pool.metrics.prompt_tokens.inc_by(prompt.into());
        pool.metrics.matched_tokens.inc_by(matched.into());
        pool.metrics.matched_lengths.observe(matched.into());
    }
    book(request, seat, |load| {
        load.book(prompt, prompt.saturating_sub(matched))
    })
}

/// Books a request at a worker that gets its prompt computed.
pub(crate) fn book_computed(request: &RequestContext, seat: WorkerChoice) -> LoadGuard {
    book(request, seat, |load| load.book_fetched(request.prompt_tokens()))
}

/// Books a request at a worker that waits for another to compute its prompt.
pub(crate) fn book_awaiting(request: &RequestContext, seat: WorkerChoice) -> LoadGuard {
    book(request, seat, |load| load.book_awaiting(request.prompt_tokens()))
}

fn book(
    request: &RequestContext,
    seat: WorkerChoice,
    lease: impl FnOnce(&Arc<WorkerLoad>) -> LoadLease,
) -> LoadGuard {
    let pool = request.pool();
    let member = &pool.workers.members[seat.member];
    let worker = &member.worker;
    let trail = LifecycleEvents::begin(&request.snapshot.events, worker, || RequestFacts {
        seq: request.seq,
        session: request.session,
        prompt_tokens: request.prompt_tokens(),
    });
    LoadGuard::new(lease(worker.load()), worker.id(), Arc::clone(&pool.queue), trail)
}
