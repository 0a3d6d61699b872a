//! When to look whether a silent publisher is really idle: soon after it fell silent, then ever more rarely.
//!
//! A message that got lost shows as a gap as soon as another follows. After the last one of a burst none follows, maybe
//! for hours: only a look finds that one.

use std::time::{Duration, Instant};

/// The first look after a message.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(500);
/// The longest pause between two looks; each is twice the one before.
pub(super) const LAST_LOOK: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Vigil {
    at: Option<Instant>,
    pause: Duration,
    /// A look found what the live stream had not brought, and it has brought nothing since.
    missed: bool,
}

impl Vigil {
    pub(super) fn new() -> Self {
        Self {
            at: None,
            pause: FIRST_LOOK,
            missed: false,
        }
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| now >= at)
    }

    /// The live stream brought something.
    pub(super) fn heard(&mut self, now: Instant) {
        self.pause = FIRST_LOOK;
        self.at = Some(now + FIRST_LOOK);
        self.missed = false;
    }

    /// A replay ended. Answers whether the live stream is silent though the publisher is not: two looks found `news`,
    /// and nothing was heard in between.
    pub(super) fn looked(&mut self, news: bool, now: Instant) -> bool {
        self.pause = if news {
            FIRST_LOOK
        } else {
            (self.pause * 2).min(LAST_LOOK)
        };
        self.at = Some(now + self.pause);
        let silent = self.missed && news;
        self.missed = (self.missed || news) && !silent;
        silent
    }

    /// Nothing is to be looked for until something is heard again.
    pub(super) fn end(&mut self) {
        self.at = None;
    }
}
