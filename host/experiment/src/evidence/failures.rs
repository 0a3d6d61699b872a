//! Consecutive failures of a canary, and the results of the control meanwhile.

use super::{Evidence, WorseArm};
use crate::rule::{Measure, StopCause};

/// Greatest expected number of such rows of failures in all requests of a canary that fails as often as its control.
const MAX_EXPECTED: f64 = 0.005;
/// Number of failures from which on more of them are not computed with.
const MAX_FACTORS: u64 = 64;

/// Results of the control since a canary's first failure in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailureRow {
    control: u64,
    control_failed: u64,
}

impl FailureRow {
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
    /// Adds a result to the canaries' rows of failures.
    pub(super) fn add_to_rows(&mut self, arm: usize, failed: bool) {
        for (row, canary) in self.rows.iter_mut().zip(1..) {
            if arm == 0 && self.arms[canary].failed_in_a_row > 0 {
                row.control += 1;
                row.control_failed += u64::from(failed);
            } else if arm == canary && !failed {
                *row = FailureRow::default();
            }
        }
    }

    /// Returns the canary if it reached the limit of consecutive failures, and the control's results meanwhile leave no
    /// other explanation. A partial outage lets both fail in rows.
    #[must_use]
    pub fn check_failures(&self, arm: usize) -> Option<WorseArm> {
        let least = self.rule.consecutive_failures;
        let row = self.rows.get(arm.checked_sub(1)?)?;
        let failed = self.arms[arm].failed_in_a_row;
        if least == 0 || failed < least {
            return None;
        }
        // A row can begin at each request, so that long trials have long ones by chance.
        let requests = self.arms[arm].samples(Measure::Errors).count();
        let is_worse = row.chance(failed) * requests as f64 <= MAX_EXPECTED;
        is_worse.then_some(WorseArm {
            arm,
            cause: StopCause::ConsecutiveFailures(failed),
        })
    }
}
