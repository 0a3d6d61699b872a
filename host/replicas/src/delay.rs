//! Delay of a router's messages, without wall clocks.

/// Milliseconds after which the assumed difference of two clocks may have grown by one millisecond: clocks of computers
/// drift by less than 200 millionths.
const DRIFT_MS: u64 = 5_000;
/// Difference above the least one from which a message is late, in milliseconds. The fastest messages of a level differ
/// by less.
const SPREAD_MS: u64 = 20;
/// Longest time between two messages of a level in milliseconds: that of four hellos.
const MOST_PAUSE_MS: u64 = 1_000;
/// Number of parts of a level. Each must have a message that is as fast as those of the others.
const LEVEL_PARTS: u64 = 4;

/// Estimate of the delay of one sender's messages.
///
/// The least difference between the own clock and the sender's, so far, is taken for a message without delay. What a
/// later message has above it is its delay.
///
/// A sender whose machine was paused has a clock that stood still: all of its later messages seem to be late by the
/// same time. The estimate restarts at a level of differences that stays the same, while messages come at their usual
/// pace, for a given time. Messages that lag in a queue do not make such a level while the queue grows or drains.
#[derive(Debug, Clone, Copy, Default)]
pub struct DelayEstimate {
    least: Option<LeastDifference>,
    /// Level of the latest messages, while all of them are late.
    level: Option<LateLevel>,
    newest_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct LeastDifference {
    difference_ms: i64,
    at_ms: u64,
}

/// Level of differences above the least one.
#[derive(Debug, Clone, Copy)]
struct LateLevel {
    /// Difference of the first message.
    first_ms: i64,
    since_ms: u64,
    /// Time of the newest message.
    heard_ms: u64,
    least_ms: i64,
    /// Beginning of the current part, and its least difference.
    part_since_ms: u64,
    part_least_ms: i64,
}

impl DelayEstimate {
    /// Returns the delay of a message in milliseconds that was sent at `sent_ms` of the sender's monotonic clock and
    /// received at `now_ms` of the own. Restarts at a level that has stayed for `settled_after_ms`.
    pub fn receive(&mut self, now_ms: u64, sent_ms: u64, settled_after_ms: u64) -> u64 {
        let difference_ms = now_ms.wrapping_sub(sent_ms).cast_signed();
        self.newest_ms = self.above_least(now_ms, difference_ms);
        if self.newest_ms <= SPREAD_MS {
            self.level = None;
            return self.newest_ms;
        }
        let level = match self.level {
            Some(level) => level.followed_by(now_ms, difference_ms, settled_after_ms),
            None => LateLevel::new(now_ms, difference_ms),
        };
        self.level = Some(level);
        if now_ms.saturating_sub(level.since_ms) >= settled_after_ms {
            self.level = None;
            self.least = Some(LeastDifference {
                difference_ms: level.least_ms,
                at_ms: now_ms,
            });
            self.newest_ms = difference_ms.abs_diff(level.least_ms);
        }
        self.newest_ms
    }

    /// Returns the milliseconds by which a difference is above the least one, which it may become.
    fn above_least(&mut self, now_ms: u64, difference_ms: i64) -> u64 {
        let expected = self.least.map(|least| {
            let drift = now_ms.saturating_sub(least.at_ms) / DRIFT_MS;
            least.difference_ms.saturating_add_unsigned(drift)
        });
        match expected {
            Some(expected) if expected <= difference_ms => difference_ms.abs_diff(expected),
            _ => {
                self.least = Some(LeastDifference {
                    difference_ms,
                    at_ms: now_ms,
                });
                0
            }
        }
    }

    /// Returns the delay of the newest message in milliseconds.
    #[must_use]
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms
    }
}

impl LateLevel {
    fn new(now_ms: u64, difference_ms: i64) -> Self {
        Self {
            first_ms: difference_ms,
            since_ms: now_ms,
            heard_ms: now_ms,
            least_ms: difference_ms,
            part_since_ms: now_ms,
            part_least_ms: difference_ms,
        }
    }

    /// Returns the level with another message. It is a new one after a pause, or if the fastest messages became faster
    /// or slower.
    fn followed_by(self, now_ms: u64, difference_ms: i64, settled_after_ms: u64) -> Self {
        let spread_ms = SPREAD_MS.saturating_add(settled_after_ms / DRIFT_MS);
        let has_paused = now_ms.saturating_sub(self.heard_ms) > MOST_PAUSE_MS;
        let is_faster = difference_ms < self.first_ms.saturating_sub_unsigned(spread_ms);
        let has_part = now_ms.saturating_sub(self.part_since_ms) >= settled_after_ms / LEVEL_PARTS;
        let is_slower = has_part && self.part_least_ms > self.first_ms.saturating_add_unsigned(spread_ms);
        if has_paused || is_faster || is_slower {
            return Self::new(now_ms, difference_ms);
        }
        let part_least_ms = if has_part { i64::MAX } else { self.part_least_ms };
        Self {
            heard_ms: now_ms,
            least_ms: self.least_ms.min(difference_ms),
            part_since_ms: if has_part { now_ms } else { self.part_since_ms },
            part_least_ms: part_least_ms.min(difference_ms),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Time after which a level has settled.
    const SETTLED_MS: u64 = 9_000;
    /// Interval of hellos.
    const HELLO_MS: u64 = 250;

    /// Returns the delay at the end of so many hellos that take `lag_ms` each, after one without delay.
    fn after_hellos(count: u64, lag_ms: impl Fn(u64) -> u64) -> u64 {
        let mut delay = DelayEstimate::default();
        delay.receive(0, 0, SETTLED_MS);
        let hellos = (1..=count).map(|hello| hello * HELLO_MS);
        let delays = hellos.map(|sent_ms| delay.receive(sent_ms + lag_ms(sent_ms), sent_ms, SETTLED_MS));
        delays.last().unwrap_or(0)
    }

    #[test]
    fn a_message_is_late_by_what_it_has_above_the_fastest() {
        let mut delay = DelayEstimate::default();
        let mut receive = |now_ms, sent_ms| delay.receive(now_ms, sent_ms, SETTLED_MS);
        assert_eq!(receive(1_000, 900_000), 0);
        assert_eq!(receive(2_000, 901_000), 0);
        assert_eq!(receive(5_001, 901_001), 3_000, "delivered after a stall");
        assert_eq!(receive(5_002, 904_002), 0);
        assert_eq!(receive(6_000, 905_001), 0, "faster than any before");
        assert_eq!(receive(7_001, 906_001), 1);
    }

    #[test]
    fn clocks_that_drift_apart_are_not_taken_for_delay() {
        let mut delay = DelayEstimate::default();
        // The sender's clock is slow by 100 millionths, for a day.
        let late = (0..86_400_u64).map(|second| {
            let now_ms = second * 1_000;
            delay.receive(now_ms, now_ms - now_ms / 10_000, SETTLED_MS)
        });
        assert!(late.max() <= Some(1));
    }

    #[test]
    fn a_sender_of_any_clock_is_taken() {
        let mut delay = DelayEstimate::default();
        assert_eq!(delay.receive(0, u64::MAX, SETTLED_MS), 0);
        assert_eq!(delay.receive(u64::MAX, 0, SETTLED_MS), 0);
        assert_eq!(delay.receive(5, 0, SETTLED_MS), 6);
        for extreme in [i64::MIN.cast_unsigned(), i64::MAX.cast_unsigned(), 0, u64::MAX] {
            delay.receive(extreme, 0, u64::MAX);
            delay.receive(0, extreme, 0);
        }
    }

    #[test]
    fn messages_that_come_in_bursts_do_not_settle() {
        let mut delay = DelayEstimate::default();
        delay.receive(0, 0, SETTLED_MS);
        // The server delivers every five seconds what has come, without the newest three seconds.
        let mut receive = |now_ms, sent_ms| delay.receive(now_ms, sent_ms, SETTLED_MS);
        for burst_ms in (5_000..200_000).step_by(5_000) {
            let sent = (burst_ms - 7_750..=burst_ms - 3_000).step_by(250);
            let least = sent.map(|sent_ms: i64| receive(burst_ms.cast_unsigned(), sent_ms.cast_unsigned()));
            assert!(least.min() >= Some(2_900), "{burst_ms}");
        }
    }

    proptest! {
        #[test]
        fn a_clock_that_stood_still_is_known_once_its_messages_have_come_for_the_time(
            pause_ms in 100..100_000_u64,
            jitter in proptest::collection::vec(0..10_u64, 64),
        ) {
            let jitter = |sent_ms: u64| jitter[(sent_ms / HELLO_MS % 64) as usize];
            let lag = |sent_ms| pause_ms + jitter(sent_ms);
            let settled = SETTLED_MS / HELLO_MS;
            prop_assert!(after_hellos(settled, lag) + 30 >= pause_ms, "not before");
            prop_assert!(after_hellos(settled + 2, lag) <= 11);
            prop_assert!(after_hellos(10 * settled, lag) <= 11);
        }

        #[test]
        fn a_queue_that_grows_or_drains_is_always_late(
            growth in prop_oneof![-90..-10_i64, 10..2_000_i64],
            hellos in 40..2_000_u64,
            jitter in proptest::collection::vec(0..5_u64, 64),
        ) {
            // So many thousandths of the time, from 2 s or down to it.
            let end_ms = hellos * HELLO_MS;
            let base_ms = if growth < 0 { growth.unsigned_abs() * end_ms / 1_000 } else { 0 };
            let lag = |sent_ms: u64| {
                let jitter = jitter[(sent_ms / HELLO_MS % 64) as usize];
                let grown = growth * sent_ms.cast_signed() / 1_000;
                (2_000 + base_ms).saturating_add_signed(grown) + jitter
            };
            prop_assert!(after_hellos(hellos, lag) >= 2_000 - 200);
        }
    }
}
