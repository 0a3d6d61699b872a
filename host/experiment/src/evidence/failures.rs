//! Consecutive failures of a canary, and the results of the control meanwhile.

use super::{Evidence, WorseArm};
use crate::rule::{Measure, StopCause};

/// Greatest expected number of such streaks in all requests of a canary that fails as often as its control.
const MAX_EXPECTED: f64 = 0.005;
/// Number of failures from which on more of them are not computed with.
const MAX_FACTORS: u64 = 64;
/// Least number of session groups in a streak: the test assumes independent results, and those of one session are not.
const MIN_FAILED_GROUPS: u32 = 3;

/// Session groups of a canary's streak, and the results of the control since its first failure.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailureStreak {
    /// Session groups of the failures, one a bit.
    groups: u64,
    control: u64,
    control_failed: u64,
}

impl FailureStreak {
    /// Returns the probability that `failed` results are all failures, if they are drawn at random from themselves and
    /// the control's (Fisher's exact test).
    fn chance(self, failed: u64) -> f64 {
        let (failures, results) = (failed + self.control_failed, failed + self.control);
        // Every factor is at most 1, so that the first ones give an upper bound.
        let factors = (0..failed.min(MAX_FACTORS)).map(|drawn| {
            let (left, of) = (failures - drawn, results - drawn);
            left as f64 / of as f64
        });
        factors.product()
    }
}

impl Evidence {
    /// Adds a result to the canaries' streaks.
    pub(super) fn add_to_streaks(&mut self, arm: usize, group: u8, failed: bool) {
        for (streak, canary) in self.streaks.iter_mut().zip(1..) {
            if arm == 0 && self.arms[canary].failed_in_a_row > 0 {
                streak.control += 1;
                streak.control_failed += u64::from(failed);
            } else if arm == canary && !failed {
                *streak = FailureStreak::default();
            } else if arm == canary {
                streak.groups |= 1_u64.wrapping_shl(group.into());
            }
        }
    }

    /// Returns the canary if it reached the limit of consecutive failures, and the control's results meanwhile leave no
    /// other explanation. A partial outage gives both of them streaks.
    #[must_use]
    pub fn check_failures(&self, arm: usize) -> Option<WorseArm> {
        let least = self.rule.consecutive_failures;
        let streak = self.streaks.get(arm.checked_sub(1)?)?;
        let failed = self.arms[arm].failed_in_a_row;
        if least == 0 || failed < least || streak.groups.count_ones() < MIN_FAILED_GROUPS {
            return None;
        }
        // A streak can begin at each request, so that long trials have long ones by chance.
        let requests = self.arms[arm].samples(Measure::Errors).count();
        let is_worse = streak.chance(failed) * requests as f64 <= MAX_EXPECTED;
        is_worse.then_some(WorseArm {
            arm,
            cause: StopCause::ConsecutiveFailures {
                failures: failed,
                control: streak.control,
                control_failed: streak.control_failed,
            },
        })
    }
}
