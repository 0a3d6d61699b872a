//! The prefill leg: sent, and read to its end, since what the decode leg needs stands in it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use tokio_util::task::TaskTracker;

use crate::attempt::{self, Answer, Asking};
use crate::context::RequestContext;
use crate::intake::{self, IntakeError};
use crate::label::FailureKind;
use crate::pd::leg::{self, LegError};
use crate::snapshot::PoolState;
use crate::tasks;

/// Longest answer of a prefill leg that is read, in bytes: one token, and maybe the logprobs of a prompt.
const LONGEST_ANSWER: usize = 64 << 20;

/// A prompt is computed, or is being computed without a reason to doubt that.
#[derive(Debug)]
pub(crate) struct Prefilled {
    /// What the worker answered; empty while it is still at it.
    pub(crate) answer: Bytes,
    /// Where it answers only beside the decode worker: the rest of it.
    pub(crate) rest: Option<Box<Answer>>,
}

/// Runs the leg to its end, within `limit`.
pub(crate) async fn run(
    request: Arc<RequestContext>,
    asking: Asking,
    limit: Duration,
) -> Result<Prefilled, LegError> {
    let started = Instant::now();
    // Has the same limit, and keeps away from a worker that exceeds it.
    let answer = attempt::send(&request, asking).await?;
    let link = &request.pool().members[answer.member].link;
    let rest = limit.saturating_sub(started.elapsed());
    let read = tokio::time::timeout(rest, read(&request, answer, started)).await;
    let done = read.unwrap_or_else(|_| {
        link.metrics.failed(FailureKind::IdleTimeout);
        Err(LegError::PrefillTimeout(limit))
    })?;
    if let Some(pd) = &request.pool().pd {
        pd.metrics.prefill_time.observe(started.elapsed().as_secs_f64());
    }
    Ok(done)
}

async fn read(request: &RequestContext, answer: Answer, started: Instant) -> Result<Prefilled, LegError> {
    if !answer.response.status().is_success() {
        return Err(leg::refused(request, answer).await);
    }
    let link = &request.pool().members[answer.member].link;
    let (mut booking, silence) = (answer.booking, answer.silence);
    let mut body = answer.response.into_body();
    let read = intake::collect(&mut body, LONGEST_ANSWER, silence.idle).await;
    let answer = read.map_err(|error| {
        link.metrics.failed(match error {
            IntakeError::Stalled { .. } => FailureKind::IdleTimeout,
            _ => FailureKind::BrokenOff,
        });
        LegError::BrokeOff(error)
    })?;
    link.cooldown.succeeded();
    link.upstream.checkin(body);
    booking.first_token(started.elapsed());
    Ok(Prefilled { answer, rest: None })
}

/// Runs the leg up to its answer's head: the rest comes when the decode worker has taken the prompt over.
pub(crate) async fn begin(request: Arc<RequestContext>, asking: Asking) -> Result<Prefilled, LegError> {
    let answer = attempt::send(&request, asking).await?;
    if !answer.response.status().is_success() {
        return Err(leg::refused(&request, answer).await);
    }
    Ok(Prefilled {
        answer: Bytes::new(),
        rest: Some(Box::new(answer)),
    })
}

/// Reads such a rest to its end, within `limit`, and throws it away.
pub(crate) async fn drain(pool: Arc<PoolState>, answer: Box<Answer>, limit: Duration) {
    let link = &pool.members[answer.member].link;
    let (_booking, mut body) = (answer.booking, answer.response.into_body());
    let read = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    match tokio::time::timeout(limit, read).await {
        Ok(true) => {
            link.cooldown.succeeded();
            link.upstream.checkin(body);
        }
        Ok(false) => link.metrics.failed(FailureKind::BrokenOff),
        Err(_) => link.metrics.failed(FailureKind::IdleTimeout),
    }
}

/// A prefill leg under way beside its decode leg.
pub(crate) struct Running {
    /// None once it is over.
    leg: Option<BoxFuture<'static, Result<Prefilled, LegError>>>,
    /// Runs it to its end where nobody waits for it any more.
    background: Option<TaskTracker>,
    /// Whether a decode worker waits for it: without one the engine would keep what it computes for nobody.
    pub(super) awaited: bool,
}

impl Running {
    /// Cancelled when dropped.
    pub(crate) fn cancellable(
        leg: impl Future<Output = Result<Prefilled, LegError>> + Send + 'static,
    ) -> Self {
        Self {
            leg: Some(Box::pin(leg)),
            background: None,
            awaited: false,
        }
    }

    /// Goes on when dropped while it is awaited.
    pub(crate) fn to_its_end(
        leg: impl Future<Output = Result<Prefilled, LegError>> + Send + 'static,
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
    type Output = Result<Prefilled, LegError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let leg = self.leg.as_mut().expect("a leg is not polled after its end");
        let done = std::task::ready!(leg.as_mut().poll(cx));
        self.leg = None;
        Poll::Ready(done)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let (Some(leg), Some(background), true) = (self.leg.take(), &self.background, self.awaited) {
            // Its own limit ends it, and its failure is counted and logged by itself.
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
