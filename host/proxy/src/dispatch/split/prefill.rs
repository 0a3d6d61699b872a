//! Prefill leg: sends the request and reads the whole answer, because it contains the parameters of the decode leg.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use inference_api::PrefillAnswer;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use worker_client::{ReadError, read_body};

use crate::base::headers::is_event_stream;
use crate::base::label::FailureKind;
use crate::dispatch::answer_check;
use crate::dispatch::attempt::{self, AttemptSpec, BegunAnswer, BegunAttempt};
use crate::dispatch::attempt_error::AttemptError;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::split::leg_error::LegError;
use crate::fleet::pool::WorkerPool;
use crate::tasks;

/// Longest answer of a prefill leg that is read, in bytes: one token, and the parameters of a handshake.
const LONGEST_ANSWER: usize = 4 << 20;
/// Most legs that run to their end in the background at a time; further ones are cancelled with their clients.
const MOST_BACKGROUND: usize = 1_024;

/// Computed prompt.
#[derive(Debug)]
pub(crate) struct Prefilled {
    /// The worker's answer.
    pub(crate) answer: Bytes,
}

/// Runs the leg to its end, within `limit`.
pub(crate) async fn run(
    request: Arc<InferenceRequest>,
    spec: AttemptSpec,
    limit: Duration,
) -> Result<Prefilled, AttemptError> {
    let started = Instant::now();
    let events = spec.lease.lifecycle_events();
    // The leg may go on in the background, while its request moves to a later pool.
    let pool = request.pool();
    // The leg has the same limit, and a worker that exceeds it is avoided.
    let answer = attempt::send(&request, spec).await?;
    let workers = &pool.workers;
    let (member, token) = (&workers.members[answer.attempt.member], answer.attempt.token);
    let rest = limit.saturating_sub(started.elapsed());
    // An answer of an error status counts in the worker's health already.
    let mut has_begun = !answer.response.status().is_success();
    let read = tokio::time::timeout(rest, read(&request, workers, answer, started, &mut has_begun)).await;
    let done = read.unwrap_or_else(|_| {
        member.link.metrics.failed(FailureKind::IdleTimeout);
        Err(LegError::PrefillTimeout(limit).into())
    });
    // A head without a byte after it is no answer.
    if let (Err(error), false) = (&done, has_begun) {
        workers.failed(member, token, error);
    }
    if let Some(events) = events {
        match &done {
            Err(error) if error.is_the_workers() => events.failed(),
            _ => events.finished(),
        }
    }
    let done = done?;
    if let Some(pd) = &pool.pd {
        pd.metrics.prefill_time.observe(started.elapsed().as_secs_f64());
    }
    Ok(done)
}

/// Reads the answer of a leg. Sets `has_begun` with the first byte of the body, or with its end.
async fn read(
    request: &InferenceRequest,
    workers: &WorkerPool,
    answer: Box<BegunAnswer>,
    started: Instant,
    has_begun: &mut bool,
) -> Result<Prefilled, AttemptError> {
    if !answer.response.status().is_success() {
        return Err(answer_check::refused(request, workers, answer).await);
    }
    let member = &workers.members[answer.attempt.member];
    let link = &member.link;
    let (
        timeouts,
        BegunAttempt {
            mut lease,
            token,
            span,
            ..
        },
    ) = (answer.timeouts, answer.attempt);
    let is_stream = is_event_stream(answer.response.headers());
    let mut body = answer.response.into_body();
    let read = match body.peek().await {
        Ok(_) => {
            *has_begun = true;
            read_body(&mut body, LONGEST_ANSWER, timeouts.idle).await
        }
        Err(error) => Err(ReadError::Broken(error)),
    };
    let answer = read.map_err(|error| {
        let kind = match error {
            ReadError::Stalled { .. } => FailureKind::IdleTimeout,
            _ => FailureKind::BrokenOff,
        };
        link.metrics.failed(kind);
        span.failed(kind);
        AttemptError::BrokeOff(error)
    })?;
    span.last_byte();
    link.upstream.checkin(body);
    lease.prompt_cached(|| PrefillAnswer::read(&answer).ok()?.cached_tokens);
    lease.computed(started.elapsed());
    if is_stream && let Some(failed) = answer_check::failed_in_stream(request, member, token, &answer) {
        return Err(failed);
    }
    link.answered(token);
    Ok(Prefilled { answer })
}

/// Prefill leg that runs beside its decode leg.
pub(crate) struct Running {
    /// The leg. `None` once it has ended.
    leg: Option<BoxFuture<'static, Result<Prefilled, AttemptError>>>,
    /// Tracker that runs the leg to its end once no request waits for it any more.
    background: Option<TaskTracker>,
    /// `true` while a decode worker waits for the leg. Without one the engine would keep the computed prompt for no
    /// one.
    pub(super) awaited: bool,
}

impl Running {
    /// Makes a leg that is cancelled when dropped.
    pub(crate) fn cancellable(
        leg: impl Future<Output = Result<Prefilled, AttemptError>> + Send + 'static,
    ) -> Self {
        Self {
            leg: Some(Box::pin(leg)),
            background: None,
            awaited: false,
        }
    }

    /// Returns `true` if the leg goes on when it is dropped.
    pub(super) fn outlives_its_request(&self) -> bool {
        self.awaited && self.free_tracker().is_some()
    }

    /// Returns the tracker if it has room for the leg.
    fn free_tracker(&self) -> Option<&TaskTracker> {
        self.background
            .as_ref()
            .filter(|tracker| tracker.len() < MOST_BACKGROUND)
    }

    /// Makes a leg that runs to its end when dropped while a decode worker waits for it.
    pub(crate) fn to_its_end(
        leg: impl Future<Output = Result<Prefilled, AttemptError>> + Send + 'static,
        background: TaskTracker,
    ) -> Self {
        Self {
            leg: Some(Box::pin(leg)),
            background: Some(background),
            awaited: false,
        }
    }
}

impl Future for Running {
    type Output = Result<Prefilled, AttemptError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let leg = self.leg.as_mut().expect("a leg is not polled after its end");
        let done = std::task::ready!(leg.as_mut().poll(cx));
        self.leg = None;
        Poll::Ready(done)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let leg = self.leg.take();
        if let (Some(leg), Some(background), true) = (leg, self.free_tracker(), self.awaited) {
            // The leg's own limit ends it. The leg counts and logs its own failure.
            tasks::spawn(background, "prefill", async {
                drop(leg.await);
            });
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("over", &self.leg.is_none())
            .finish_non_exhaustive()
    }
}
