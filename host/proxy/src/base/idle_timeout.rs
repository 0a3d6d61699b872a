//! Idle timeout of a response, and its overall deadline.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// Idle timeouts and deadline of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleTimeoutLimits {
    /// Time limit from the dispatch to the first byte of the body.
    pub(crate) first_byte: Duration,
    /// Idle timeout within the body.
    pub(crate) idle: Duration,
    /// Deadline of the whole request.
    pub(crate) deadline: Option<Instant>,
}

/// Kind of an expired timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpiredTimeout {
    /// No data came for this time.
    Idle(Duration),
    /// The deadline of the whole request passed.
    Deadline,
}

/// Idle timeout with one timer for the whole response. The timer is not reset by data: when it fires, it is moved to
/// the end of the current idle time.
#[derive(Debug)]
pub(crate) struct IdleTimeout {
    pub(crate) dispatched: Instant,
    limits: IdleTimeoutLimits,
    pub(crate) seen_first: bool,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    /// Starts at the dispatch of the request whose response head has come.
    pub(crate) fn since(dispatched: Instant, limits: IdleTimeoutLimits) -> Self {
        Self {
            dispatched,
            limits,
            seen_first: false,
            since: None,
            timer: None,
        }
    }

    /// Records that data came.
    pub(crate) fn restart(&mut self) {
        self.seen_first = true;
        self.since = None;
    }

    /// Returns `Ready` when the idle timeout has expired or the deadline has passed.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<ExpiredTimeout> {
        let (since, limit) = if self.seen_first {
            (*self.since.get_or_insert_with(Instant::now), self.limits.idle)
        } else {
            (self.dispatched, self.limits.first_byte)
        };
        let (mut deadline, mut expired) = (since + limit, ExpiredTimeout::Idle(limit));
        if let Some(end) = self.limits.deadline.filter(|end| *end < deadline) {
            (deadline, expired) = (end, ExpiredTimeout::Deadline);
        }
        let deadline = tokio::time::Instant::from_std(deadline);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            std::task::ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(expired);
            }
            timer.as_mut().reset(deadline);
        }
    }
}
