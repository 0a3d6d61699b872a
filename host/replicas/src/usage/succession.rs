//! Succession of one router's messages: what one means depends on whether it follows the one before without a break.
//!
//! Counters that grew over a longer time must not be charged at once: meanwhile the limit was refilled. After a gap,
//! and in a backlog that is delivered at once, counters therefore begin with their levels. Only the sender's clock
//! and the own one are compared with themselves.

/// Milliseconds by which messages of a backlog become faster, at least.
const DRAIN_MS: i64 = 20;
/// Milliseconds without a faster message after which a backlog is over.
const SETTLED_MS: u64 = 500;
/// Milliseconds of messages whose fastest one is usual.
const WATCHED_MS: u64 = 3_000;
/// Milliseconds by which messages become faster over that time while clocks drift and delays change, at most.
const DRIFT_MS: i64 = 20;

/// Times beyond which a message does not follow the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuccessionSpec {
    /// Milliseconds by which a message is faster than usual that comes from a backlog: those before it were late.
    pub late_ms: u64,
    /// Maximum time between two messages, in milliseconds of the sender's clock.
    pub gap_ms: u64,
}

/// Relation of a message to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Succession {
    /// Message without a break before it.
    Next,
    /// Message after a pause of the sender, or after others that are missing.
    Gap,
    /// Message that was late: later ones follow at once.
    Backlog,
}

/// Times of a router's messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageTimes {
    /// Time of the newest one, by the sender's clock.
    sent_ms: u64,
    /// Usual difference between the own clock and the sender's at a message.
    usual_ms: i64,
    /// Least difference of the messages since an own time.
    least_ms: i64,
    since_ms: u64,
    /// Own time before which a backlog is not over.
    backlog_until_ms: u64,
}

impl MessageTimes {
    /// Returns the times of a router whose first message was sent and received then.
    pub(super) fn new(now_ms: u64, sent_ms: u64) -> Self {
        let difference = difference(now_ms, sent_ms);
        Self {
            sent_ms,
            usual_ms: difference,
            least_ms: difference,
            since_ms: now_ms,
            backlog_until_ms: 0,
        }
    }

    /// Records a message, and returns how it follows the one before.
    pub(super) fn follow(&mut self, now_ms: u64, sent_ms: u64, spec: SuccessionSpec) -> Succession {
        let difference = difference(now_ms, sent_ms);
        let has_gap = sent_ms.saturating_sub(self.sent_ms) > spec.gap_ms;
        self.sent_ms = sent_ms;
        if has_gap {
            self.watch(now_ms, difference, difference);
            return Succession::Gap;
        }
        let is_draining = now_ms < self.backlog_until_ms;
        let faster_ms = match is_draining {
            true => DRAIN_MS,
            false => i64::try_from(spec.late_ms).unwrap_or(i64::MAX),
        };
        if self.usual_ms.saturating_sub(difference) > faster_ms {
            self.watch(now_ms, difference, difference);
            self.backlog_until_ms = now_ms.saturating_add(SETTLED_MS);
            return Succession::Backlog;
        }
        self.least_ms = self.least_ms.min(difference);
        if now_ms.saturating_sub(self.since_ms) >= WATCHED_MS {
            // After the sender's clock stood still, all messages have a higher difference.
            let usual_ms = self.least_ms.max(self.usual_ms.saturating_sub(DRIFT_MS));
            self.watch(now_ms, usual_ms, difference);
        }
        if is_draining {
            Succession::Backlog
        } else {
            Succession::Next
        }
    }

    /// Sets the usual difference, and compares it with the messages from this one on.
    fn watch(&mut self, now_ms: u64, usual_ms: i64, difference: i64) {
        self.usual_ms = usual_ms;
        self.least_ms = difference;
        self.since_ms = now_ms;
    }
}

fn difference(now_ms: u64, sent_ms: u64) -> i64 {
    now_ms.wrapping_sub(sent_ms).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: SuccessionSpec = SuccessionSpec {
        late_ms: 1_500,
        gap_ms: 3_000,
    };

    #[test]
    fn a_backlog_ends_once_no_message_is_faster_than_the_one_before() {
        let mut times = MessageTimes::new(0, 0);
        let mut follow = |now_ms, sent_ms| times.follow(now_ms, sent_ms, SPEC);
        assert_eq!(follow(50, 50), Succession::Next);
        // The receiver's clock stood still for 20 s.
        let backlog: Vec<Succession> = (100..=20_000)
            .step_by(50)
            .map(|sent_ms| follow(60, sent_ms))
            .collect();
        let late = backlog.iter().filter(|one| **one == Succession::Backlog).count();
        assert!(late * 50 >= 20_000 - 1_600, "{late}");
        assert_eq!(follow(110, 20_050), Succession::Backlog);
        assert_eq!(follow(610, 20_550), Succession::Next);
    }

    #[test]
    fn a_backlog_ends_however_often_messages_come_and_their_delay_changes() {
        for every_ms in [10, 20, 50, 1_000] {
            let mut times = MessageTimes::new(2_000, 0);
            let mut follow = |at: u64| {
                // One of 30 messages is faster than the others.
                let delay_ms = if at.is_multiple_of(30) { 0 } else { 80 };
                let sent_ms = at * every_ms;
                times.follow((sent_ms + delay_ms).max(2_000), sent_ms, SPEC)
            };
            let settled_at = 5_000 / every_ms;
            let backlog = (1..settled_at).filter(|at| follow(*at) == Succession::Backlog);
            assert!(backlog.count() > 0, "{every_ms}");
            let mut later = settled_at..settled_at + 1_000;
            assert!(later.all(|at| follow(at) == Succession::Next), "{every_ms}");
        }
    }

    #[test]
    fn clocks_that_drift_apart_make_no_backlog() {
        for is_faster in [true, false] {
            let mut times = MessageTimes::new(0, 0);
            for second in 1..86_400_u64 {
                let (slow_ms, fast_ms) = (second * 1_000, second * 1_000 + second / 5);
                let (now_ms, sent_ms) = if is_faster {
                    (slow_ms, fast_ms)
                } else {
                    (fast_ms, slow_ms)
                };
                assert_eq!(times.follow(now_ms, sent_ms, SPEC), Succession::Next, "{second}");
            }
        }
    }

    #[test]
    fn a_sender_that_stood_still_makes_neither_a_gap_nor_a_backlog() {
        let mut times = MessageTimes::new(0, 0);
        for sent_ms in (50..20_000).step_by(50) {
            assert_eq!(times.follow(sent_ms + 25_000, sent_ms, SPEC), Succession::Next);
        }
        assert_eq!(times.follow(60_000, 25_000, SPEC), Succession::Gap);
    }

    #[test]
    fn a_backlog_is_found_soon_after_the_sender_stood_still() {
        let mut times = MessageTimes::new(0, 0);
        let mut follow = |now_ms, sent_ms| times.follow(now_ms, sent_ms, SPEC);
        let moved: Vec<Succession> = (50..=6_000)
            .step_by(50)
            .map(|sent_ms| follow(sent_ms + 8_000, sent_ms))
            .collect();
        assert!(moved.iter().all(|one| *one == Succession::Next));
        // The receiver's clock stood still for 4 s.
        let backlog = (6_050..=10_000)
            .step_by(50)
            .map(|sent_ms| follow(14_000, sent_ms));
        assert_eq!(backlog.last(), Some(Succession::Backlog));
    }

    #[test]
    fn a_sender_of_any_clock_is_followed() {
        for (now_ms, sent_ms) in [(0, u64::MAX), (u64::MAX, 0), (0, 1 << 63), (1 << 63, 0)] {
            let mut times = MessageTimes::new(0, 0);
            times.follow(now_ms, sent_ms, SPEC);
            times.follow(sent_ms, now_ms, SPEC);
        }
    }
}
