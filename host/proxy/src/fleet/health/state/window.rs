//! Sliding window of failures: the share of requests that failed lately.

use std::time::Duration;

use crate::fleet::health::HealthSpec;

/// Recent failures. The window begins with a failure, so that good answers need no clock.
#[derive(Debug, Default)]
pub(super) struct OutcomeWindow {
    since_ms: u64,
    /// Good answers before the window.
    answers: u64,
    failures: u64,
}

impl OutcomeWindow {
    pub(super) fn failed(&mut self, rules: &HealthSpec, now_ms: u64, answers: u64) {
        let is_over = now_ms.saturating_sub(self.since_ms) > millis(rules.failure_window);
        if self.failures == 0 || is_over {
            *self = Self {
                since_ms: now_ms,
                answers,
                failures: 0,
            };
        }
        self.failures += 1;
    }

    pub(super) fn is_bad(&self, rules: &HealthSpec, answers: u64) -> bool {
        let all = self.failures + answers.saturating_sub(self.answers);
        rules.failure_min_requests > 0
            && all >= u64::from(rules.failure_min_requests)
            && self.failures as f64 >= rules.failure_share * all as f64
    }
}

/// Returns whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}
