//! One attempt: takes a load lease, sends the request, and records the result in the worker's health.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use placement::WorkerChoice;
use request_traces::LegKind;
use routing::{LoadLease, WorkerLoad};
use tokio::time::timeout;
use tracing::{debug, warn};
use worker_client::{ConnectionReuse, OutgoingRequest, SendError, SendTimeouts, WorkerBody};

use crate::base::idle_timeout::IdleTimeoutLimits;
use crate::base::label::FailureKind;
use crate::base::request_id::RequestId;
use crate::base::timeouts::RequestLimits;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::load_guard::LoadGuard;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::{Member, WorkerPool};
use crate::fleet::worker::WorkerHandle;
use crate::limits::retries;
use crate::observe::events::{LifecycleEvents, RequestFacts};
use crate::observe::spans::AttemptSpan;

/// A worker's answer, with everything that lives as long as its body.
#[derive(Debug)]
pub(crate) struct BegunAnswer {
    pub(crate) response: Response<WorkerBody>,
    pub(crate) attempt: BegunAttempt,
    pub(crate) report: DecisionReport,
    /// Idle timeouts of the rest of the request.
    pub(crate) timeouts: IdleTimeoutLimits,
}

/// Attempt that has begun at a worker.
#[derive(Debug)]
pub(crate) struct BegunAttempt {
    /// Index into the pool's members.
    pub(crate) member: usize,
    pub(crate) lease: LoadGuard,
    /// Token of this attempt for the worker's health. The worker's health changes with the first byte of the body.
    pub(crate) token: AttemptToken,
    pub(crate) dispatched: Instant,
    /// Notes of the attempt for the request's trace.
    pub(crate) span: AttemptSpan,
}

/// Decision that the response reports in its headers.
#[derive(Debug, Default)]
pub(crate) struct DecisionReport {
    /// Set if the response has these headers.
    pub(crate) is_shown: bool,
    /// Name of the deciding policy.
    pub(crate) policy: Option<HeaderValue>,
    /// Tokens of the prompt that the worker holds according to the index. `None` where the tokens or the matches are
    /// unknown.
    pub(crate) matched: Option<u32>,
}

/// Parameters of one upstream attempt.
#[derive(Debug)]
pub(crate) struct AttemptSpec {
    pub(crate) choice: WorkerChoice,
    pub(crate) leg: LegKind,
    pub(crate) lease: LoadGuard,
    pub(crate) body: Bytes,
    /// Data-parallel rank that the request is pinned to.
    pub(crate) rank: Option<u16>,
    /// `true` for a leg, whose handshake serves once.
    pub(crate) once: bool,
    pub(crate) limits: SendTimeouts,
    pub(crate) timeouts: IdleTimeoutLimits,
}

impl AttemptSpec {
    /// Books a request that one worker serves. Returns the parameters of the attempt.
    pub(crate) fn whole(request: &InferenceRequest, choice: WorkerChoice) -> Self {
        if let Some(pd) = &request.pool().pd {
            pd.metrics.whole.inc();
        }
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
            choice,
            leg: LegKind::Whole,
            lease: book_prompt(request, choice),
            body: request.body.clone(),
            rank: pinned_rank(request, choice),
            once: false,
            limits: SendTimeouts {
                connect: limits.connect_timeout,
                first_byte: limits.first_byte_timeout,
            },
            timeouts: IdleTimeoutLimits {
                first_byte: limits.first_token_timeout.unwrap_or(limits.first_byte_timeout),
                idle: limits.idle_timeout,
                deadline: request.deadline(),
            },
        }
    }
}

/// Returns the worker's rank, where several ranks share a URL.
pub(crate) fn pinned_rank(request: &InferenceRequest, choice: WorkerChoice) -> Option<u16> {
    let worker = &request.pool().workers.members[choice.member].worker;
    worker.spec().rank.map(|rank| rank.0)
}

impl BegunAttempt {
    /// Records the dispatch of a request to a worker.
    pub(crate) fn begin(
        request: &InferenceRequest,
        choice: WorkerChoice,
        lease: LoadGuard,
        leg: LegKind,
    ) -> Self {
        let member = &request.pool().workers.members[choice.member];
        debug!(
            seq = request.head.seq,
            worker = &*member.worker.spec().name,
            matched = choice.matched,
            "sending a request"
        );
        member.link.metrics.attempts.inc();
        let token = member.link.begin();
        request.progress.is_sent.store(true, Ordering::Relaxed);
        lease.dispatched();
        let dispatched = Instant::now();
        let watch = &request.head.watch;
        watch.stages.dispatched(dispatched);
        Self {
            member: choice.member,
            lease,
            token,
            dispatched,
            span: watch.spans.attempt(member.worker.shared_spec(), leg, dispatched),
        }
    }

    /// Records the head of the worker's answer in its health.
    pub(crate) fn answered(&self, pool: &WorkerPool, status: StatusCode, headers: &HeaderMap) {
        let member = &pool.members[self.member];
        self.span.answered(status);
        if status.is_server_error() {
            pool.server_error(member, self.token, status);
        }
        heed_retry_after(&member.link, status, headers);
    }

    /// Records that the worker gave no answer. `is_leg`: a leg has rules of its own for crashes.
    pub(crate) fn failed(
        &self,
        pool: &WorkerPool,
        request: &InferenceRequest,
        error: &SendError,
        is_leg: bool,
    ) {
        let member = &pool.members[self.member];
        self.lease.failed();
        member.link.metrics.failed(FailureKind::from(error));
        self.span.failed(FailureKind::from(error));
        let is_crash = matches!(error, SendError::Closed(_));
        let is_ejected = if is_crash && !is_leg {
            request.progress.crashes.add(self.member, self.token);
            false
        } else {
            !error.is_blameless() && pool.failed(member, self.token, error)
        };
        report(member, &request.head.id, error, is_ejected);
    }
}

/// Passes a worker over for the time that its answer requires by `Retry-After`.
pub(crate) fn heed_retry_after(link: &WorkerHandle, status: StatusCode, headers: &HeaderMap) {
    if let Some(after_ms) = retries::retry_after_ms(status, headers) {
        link.health.note(&format!("it answered a request with {status}"));
        link.health.passed_over(after_ms, link.now_ms());
    }
}

/// Sends the request and waits for the head of the answer.
pub(crate) async fn send(
    request: &InferenceRequest,
    spec: AttemptSpec,
) -> Result<Box<BegunAnswer>, SendError> {
    // A leg in the background may outlive a move of its request to a later pool.
    let pool = &request.pool().workers;
    let member = &pool.members[spec.choice.member];
    let reuse = match spec.once {
        true => ConnectionReuse::Once,
        // After a crash a closed connection must not be a kept one, which a server may close at any time.
        false if request.progress.crashes.count() > 0 => ConnectionReuse::Never,
        false => ConnectionReuse::WithRetry,
    };
    let mut attempt = BegunAttempt::begin(request, spec.choice, spec.lease, spec.leg);
    let parent = attempt.span.header().cloned();
    let outgoing = OutgoingRequest {
        method: &request.head.method,
        target: &request.head.target,
        headers: &request.head.headers,
        // A request may have waited for another pool, whose key is not this one's.
        authorization: &pool.authorization,
        rank: spec.rank,
        body: &spec.body,
        traceparent: parent.as_ref(),
        reuse,
    };
    let answer = pin!(member.link.upstream.forward(outgoing, spec.limits));
    // An answer in one piece hides its first token; a leg has rules of its own.
    let hides_first_token = !request.params.stream && !spec.once;
    let outcome = match attempt.lease.expected_ttft() {
        Some(expected) if hides_first_token => {
            wait_with_assumed_prefill(answer, expected, &mut attempt.lease).await
        }
        _ => answer.await,
    };
    match outcome {
        Ok(response) => {
            attempt.span.connected(response.body().connected_at());
            attempt.answered(pool, response.status(), response.headers());
            // On the heap: it is moved up through all callers.
            Ok(Box::new(BegunAnswer {
                report: DecisionReport::of(request, spec.choice),
                response,
                attempt,
                timeouts: spec.timeouts,
            }))
        }
        Err(error) => {
            attempt.failed(pool, request, &error, spec.once);
            Err(error)
        }
    }
}

impl DecisionReport {
    /// Returns the report of a request that goes to that worker.
    pub(crate) fn of(request: &InferenceRequest, choice: WorkerChoice) -> Self {
        let is_shown = request.settings.decision_headers;
        Self {
            is_shown,
            policy: is_shown.then(|| request.progress.decided_by.header()).flatten(),
            matched: request.params.prompt.as_ref().and(choice.matched),
        }
    }
}

/// Waits for an answer whose first token cannot be seen. Its prompt is taken for computed at the expected time.
async fn wait_with_assumed_prefill<T>(
    mut answer: Pin<&mut impl Future<Output = T>>,
    expected: Duration,
    lease: &mut LoadGuard,
) -> T {
    if let Ok(early) = timeout(expected, answer.as_mut()).await {
        return early;
    }
    lease.take_for_computed();
    answer.await
}

/// Logs that a worker failed to answer.
pub(crate) fn report(member: &Member, id: &HeaderValue, error: &SendError, is_ejected: bool) {
    let worker = &*member.worker.spec().name;
    let held_back = || member.link.failure_log.pass();
    let (id, chain) = (RequestId(id), error as &dyn std::error::Error);
    if is_ejected {
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
pub(crate) fn book_prompt(request: &InferenceRequest, choice: WorkerChoice) -> LoadGuard {
    let pool = request.pool();
    let prompt = request.prompt_tokens();
    let matched = choice.matched.unwrap_or(0);
    // A retry is not another request.
    if request.params.prompt.is_some() && !request.progress.is_sent.load(Ordering::Relaxed) {
        let metrics = &pool.metrics.prompt_tokens;
        metrics.prompt.inc_by(prompt.into());
        metrics.best_match.inc_by(choice.best.unwrap_or(0).into());
        metrics.matched.inc_by(matched.into());
        metrics.matched_lengths.observe(matched.into());
    }
    book(request, choice, |load| {
        load.book(prompt, prompt.saturating_sub(matched))
            .with_best_match(choice.best.unwrap_or(0))
    })
}

/// Books a request at a worker that gets its prompt computed.
pub(crate) fn book_computed(request: &InferenceRequest, choice: WorkerChoice) -> LoadGuard {
    book(request, choice, |load| load.book_fetched(request.prompt_tokens()))
}

/// Books a request at a worker that waits for another to compute its prompt.
pub(crate) fn book_awaiting(request: &InferenceRequest, choice: WorkerChoice) -> LoadGuard {
    book(request, choice, |load| {
        load.book_awaiting(request.prompt_tokens())
    })
}

fn book(
    request: &InferenceRequest,
    choice: WorkerChoice,
    lease: impl FnOnce(&Arc<WorkerLoad>) -> LoadLease,
) -> LoadGuard {
    let pool = request.pool();
    let member = &pool.workers.members[choice.member];
    let worker = &member.worker;
    let lifecycle_events = LifecycleEvents::begin(&request.settings.events, worker, || RequestFacts {
        seq: request.head.seq,
        session: request.params.session,
        prompt_tokens: request.prompt_tokens(),
    });
    LoadGuard::new(
        lease(worker.load()),
        worker.id(),
        Arc::clone(&pool.queue.controller),
        lifecycle_events,
    )
}
