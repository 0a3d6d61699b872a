//! Reason of a feed's state: cause, duration, and next retry.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Cause of a feed's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedCause {
    /// The feed is live, or its thread has ended.
    None,
    /// The publisher was never connected.
    NotConnected,
    /// The connection to the publisher is lost.
    ConnectionLost,
    /// The publisher is connected, but has sent nothing yet.
    NothingReceived,
    /// The subscription cannot be opened.
    NotOpened,
    /// A replay of missed messages is running.
    Replaying,
    /// The engine works, but its feed is silent.
    Mute,
    /// A replay was not answered, so messages may be missing.
    Doubtful,
    /// The connection was closed for a protocol error of the publisher.
    Refused,
}

impl FeedCause {
    const ALL: [Self; 9] = [
        Self::None,
        Self::NotConnected,
        Self::ConnectionLost,
        Self::NothingReceived,
        Self::NotOpened,
        Self::Replaying,
        Self::Mute,
        Self::Doubtful,
        Self::Refused,
    ];

    fn text(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::NotConnected => "the publisher was never connected: it is not up, or not at this address",
            Self::ConnectionLost => "the connection to the publisher is lost",
            Self::NothingReceived => "the publisher is connected and has sent nothing yet",
            Self::NotOpened => "the subscription cannot be opened; the log has the error",
            Self::Replaying => "messages that were missed are being replayed",
            Self::Mute => "the engine works, and its feed delivers nothing",
            Self::Refused => {
                "the publisher exceeds a limit of [kv-events], breaks the protocol or refuses the handshake: `refused` counts which"
            }
            Self::Doubtful => "messages may have been missed: a request for a replay was not answered",
        })
    }
}

/// Reason of a feed's state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedReason {
    /// Cause of the state.
    pub cause: FeedCause,
    /// Duration of the state.
    pub lasted: Duration,
    /// Time until the feed retries a request or subscription; `None` if it only waits. Connections are retried all the
    /// time.
    pub next_try: Option<Duration>,
    /// Replay requests are not answered.
    pub is_unanswered: bool,
    /// Set once an attempt to connect has failed, and from the beginning where the publisher connects to the router.
    pub is_awaited: bool,
}

impl FeedReason {
    /// Returns the cause in words; `None` while the feed is live.
    #[must_use]
    pub fn text(&self) -> Option<&'static str> {
        self.cause.text()
    }
}

/// Current reason; written by one thread.
#[derive(Debug)]
pub(crate) struct ReasonCell {
    began: Instant,
    cause: AtomicU8,
    /// Microseconds from `began` to the latest state change.
    since_us: AtomicU64,
    /// Microseconds plus one from `began` to the next retry; 0 for none.
    next_us: AtomicU64,
    is_unanswered: AtomicBool,
    is_awaited: AtomicBool,
}

impl Default for ReasonCell {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            cause: AtomicU8::new(FeedCause::NotConnected as u8),
            since_us: AtomicU64::default(),
            next_us: AtomicU64::default(),
            is_unanswered: AtomicBool::default(),
            is_awaited: AtomicBool::default(),
        }
    }
}

impl ReasonCell {
    /// Records the cause and the next retry.
    pub(crate) fn set(&self, cause: FeedCause, next_try: Option<Instant>, is_unanswered: bool) {
        self.cause.store(cause as u8, Relaxed);
        let next_us = next_try.map_or(0, |at| self.micros(at).saturating_add(1));
        self.next_us.store(next_us, Relaxed);
        self.is_unanswered.store(is_unanswered, Relaxed);
    }

    /// Records that the publisher is waited for.
    pub(crate) fn awaited(&self) {
        self.is_awaited.store(true, Relaxed);
    }

    /// Records a state change now.
    pub(crate) fn changed(&self) {
        self.since_us.store(self.micros(Instant::now()), Relaxed);
    }

    pub(crate) fn read(&self) -> FeedReason {
        let now_us = self.micros(Instant::now());
        let until = |at_us: u64| Duration::from_micros(at_us.saturating_sub(now_us));
        let cause = usize::from(self.cause.load(Relaxed));
        FeedReason {
            cause: FeedCause::ALL[cause % FeedCause::ALL.len()],
            lasted: Duration::from_micros(now_us.saturating_sub(self.since_us.load(Relaxed))),
            next_try: self.next_us.load(Relaxed).checked_sub(1).map(until),
            is_unanswered: self.is_unanswered.load(Relaxed),
            is_awaited: self.is_awaited.load(Relaxed),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_stands_at_its_number_and_has_words_but_for_none() {
        for (at, cause) in FeedCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            assert_eq!(cause.text().is_none(), cause == FeedCause::None);
        }
    }

    #[test]
    fn feed_reasons_round_trip() {
        let cell = ReasonCell::default();
        assert_eq!(cell.read().cause, FeedCause::NotConnected);
        cell.set(
            FeedCause::Doubtful,
            Some(Instant::now() + Duration::from_secs(3_600)),
            true,
        );
        let reason = cell.read();
        assert_eq!((reason.cause, reason.is_unanswered), (FeedCause::Doubtful, true));
        assert!(reason.next_try.unwrap() > Duration::from_secs(3_000));
        cell.set(FeedCause::None, None, false);
        assert_eq!((cell.read().text(), cell.read().next_try), (None, None));
    }
}
