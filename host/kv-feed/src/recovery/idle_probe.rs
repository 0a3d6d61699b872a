//! Idle probe: schedules checks of a silent publisher with exponential backoff.
//!
//! A lost message shows as a gap as soon as another one follows. After the last one of a burst none may follow for
//! hours: only a check finds that loss.

use std::time::{Duration, Instant};

/// Usual delay of the first check after a message.
pub(crate) const FIRST_CHECK: Duration = Duration::from_millis(500);
/// Longest pause between two checks; each is twice the one before.
pub(super) const LAST_CHECK: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct IdleProbe {
    at: Option<Instant>,
    /// Delay of the first check after a message.
    first: Duration,
    pause: Duration,
    /// A check found messages that the live stream had not delivered, and none has arrived since.
    missed: bool,
}

impl IdleProbe {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            at: None,
            first,
            pause: first,
            missed: false,
        }
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| now >= at)
    }

    /// Records a live message.
    pub(super) fn received(&mut self, now: Instant) {
        self.pause = self.first;
        self.at = Some(now + self.first);
        self.missed = false;
    }

    /// Records the end of a check. Returns `true` if the live stream is broken: two checks found `news`, and nothing
    /// was received in between.
    pub(super) fn check_ended(&mut self, news: bool, now: Instant) -> bool {
        self.pause = if news {
            self.first
        } else {
            (self.pause * 2).min(LAST_CHECK.max(self.first))
        };
        self.at = Some(now + self.pause);
        let silent = self.missed && news;
        self.missed = (self.missed || news) && !silent;
        silent
    }

    /// Stops checking until the next live message.
    pub(super) fn end(&mut self) {
        self.at = None;
    }
}
