//! Idle timeout of a response, and its overall deadline.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// How long an answer may be silent, and when it must be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleTimeoutLimits {
    /// From the dispatch to the first byte of the body.
    pub(crate) first_byte: Duration,
    /// In the middle of it.
    pub(crate) idle: Duration,
    /// The end of the whole request's time.
    pub(crate) deadline: Option<Instant>,
}

/// What is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooLong {
    /// Nothing came for so long.
    Silent(Duration),
    /// The whole request.
    Whole,
}

/// How long nothing has come, with one timer for the whole answer: it is set for the end of the first silence
/// and, when it fires, moved on to the end of the one that is under way.
#[derive(Debug)]
pub(crate) struct IdleTimeout {
    pub(crate) dispatched: Instant,
    limits: IdleTimeoutLimits,
    pub(crate) seen_first: bool,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    /// From the dispatch of the request, whose answer's head has come.
    pub(crate) fn since(dispatched: Instant, limits: IdleTimeoutLimits) -> Self {
        Self {
            dispatched,
            limits,
            seen_first: false,
            since: None,
            timer: None,
        }
    }

    /// Something came.
    pub(crate) fn broken(&mut self) {
        self.seen_first = true;
        self.since = None;
    }

    /// Ready when nothing has come for too long, or the request's time is up.
    pub(crate) fn poll_too_long(&mut self, cx: &mut Context<'_>) -> Poll<TooLong> {
        let (since, limit) = if self.seen_first {
            (*self.since.get_or_insert_with(Instant::now), self.limits.idle)
        } else {
            (self.dispatched, self.limits.first_byte)
        };
        let (mut deadline, mut too_long) = (since + limit, TooLong::Silent(limit));
        if let Some(end) = self.limits.deadline.filter(|end| *end < deadline) {
            (deadline, too_long) = (end, TooLong::Whole);
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
                return Poll::Ready(too_long);
            }
            timer.as_mut().reset(deadline);
        }
    }
}
