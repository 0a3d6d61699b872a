//! Delay of a router's messages, without wall clocks.

/// Milliseconds after which the assumed difference of two clocks may have grown by one millisecond: clocks of computers
/// drift by less than 200 millionths.
const DRIFT_MS: u64 = 5_000;

/// Estimate of the delay of one sender's messages.
///
/// The least difference between the own clock and the sender's, so far, is taken for a message without delay. What a
/// later message has above it is its delay.
#[derive(Debug, Clone, Copy, Default)]
pub struct DelayEstimate {
    least: Option<LeastDifference>,
    newest_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct LeastDifference {
    difference_ms: i64,
    at_ms: u64,
}

impl DelayEstimate {
    /// Returns the delay of a message in milliseconds that was sent at `sent_ms` of the sender's monotonic clock and
    /// received at `now_ms` of the own.
    pub fn receive(&mut self, now_ms: u64, sent_ms: u64) -> u64 {
        let difference_ms = now_ms.wrapping_sub(sent_ms).cast_signed();
        let expected = self.least.map(|least| {
            let drift = now_ms.saturating_sub(least.at_ms) / DRIFT_MS;
            least.difference_ms.saturating_add_unsigned(drift)
        });
        self.newest_ms = match expected {
            Some(expected) if expected <= difference_ms => difference_ms.abs_diff(expected),
            _ => {
                self.least = Some(LeastDifference {
                    difference_ms,
                    at_ms: now_ms,
                });
                0
            }
        };
        self.newest_ms
    }

    /// Returns the delay of the newest message in milliseconds.
    #[must_use]
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_late_by_what_it_has_above_the_fastest() {
        let mut delay = DelayEstimate::default();
        assert_eq!(delay.receive(1_000, 900_000), 0);
        assert_eq!(delay.receive(2_000, 901_000), 0);
        assert_eq!(delay.receive(5_001, 901_001), 3_000, "delivered after a stall");
        assert_eq!(delay.receive(5_002, 904_002), 0);
        assert_eq!(delay.receive(6_000, 905_001), 0, "faster than any before");
        assert_eq!(delay.receive(7_001, 906_001), 1);
    }

    #[test]
    fn clocks_that_drift_apart_are_not_taken_for_delay() {
        let mut delay = DelayEstimate::default();
        // The sender's clock is slow by 100 millionths, for a day.
        let late = (0..86_400_u64).map(|second| {
            let now_ms = second * 1_000;
            delay.receive(now_ms, now_ms - now_ms / 10_000)
        });
        assert!(late.max() <= Some(1));
    }

    #[test]
    fn a_sender_of_any_clock_is_taken() {
        let mut delay = DelayEstimate::default();
        assert_eq!(delay.receive(0, u64::MAX), 0);
        assert_eq!(delay.receive(u64::MAX, 0), 0);
        assert_eq!(delay.receive(5, 0), 6);
    }
}
