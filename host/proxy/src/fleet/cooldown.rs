//! Circuit breaker for a worker's tokenizer, with exponential backoff. Pure: time is passed in.
//!
//! A failure opens the circuit for 1 s. Each further failure doubles the time, up to 30 s. After that, one trial
//! request is sent (half-open) while the others still avoid the tokenizer. If the trial succeeds, the circuit closes.
//! If it fails, the next, longer pause begins.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fleet::health::AttemptToken;

const FIRST_REST_MS: u64 = 1_000;
const LONGEST_REST_MS: u64 = 30_000;
/// Consecutive tries without an answer in time after which a pause begins. One slow answer proves nothing.
const MOST_UNANSWERED: u32 = 3;

/// Circuit breaker of relaxed atomics. Two concurrent requests may both try a resting tokenizer, which does no harm.
#[derive(Debug, Default)]
pub(crate) struct Cooldown {
    /// End of the rest; 0 while healthy.
    until_ms: AtomicU64,
    /// Consecutive failed tries.
    failures: AtomicU32,
    /// Consecutive tries that were given up without an answer.
    unanswered: AtomicU32,
}

impl Cooldown {
    /// Returns `true` if it failed and has not answered since.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures() != 0
    }

    /// Returns the number of consecutive failed tries.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns `true` while the tokenizer is to be avoided.
    pub(crate) fn is_resting(&self, now_ms: u64) -> bool {
        self.until_ms.load(Ordering::Relaxed) > now_ms
    }

    /// Records that a request is about to be sent.
    pub(crate) fn begin(&self, now_ms: u64) -> AttemptToken {
        let failures = self.failures.load(Ordering::Relaxed);
        if failures == 0 || self.is_resting(now_ms) {
            return AttemptToken::Plain;
        }
        // If the trial hangs, another may follow after the same time.
        self.until_ms.store(now_ms + rest(failures), Ordering::Relaxed);
        AttemptToken::Trial
    }

    /// Records an answer, whatever its content.
    pub(crate) fn succeeded(&self) {
        if self.unanswered.load(Ordering::Relaxed) != 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
        if self.has_failed() {
            self.failures.store(0, Ordering::Relaxed);
            self.until_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failure to answer. Returns `true` if a pause begins now. The requests that were under way at a failure
    /// count as one failure.
    pub(crate) fn failed(&self, dispatch: AttemptToken, now_ms: u64) -> bool {
        if dispatch == AttemptToken::Plain && self.is_resting(now_ms) {
            return false;
        }
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        self.failures.store(failures, Ordering::Relaxed);
        self.until_ms.store(now_ms + rest(failures), Ordering::Relaxed);
        true
    }

    /// Records an attempt that was given up before an answer came. A pause begins after some of these in a row, and at
    /// once after a trial.
    pub(crate) fn unanswered(&self, dispatch: AttemptToken, now_ms: u64) {
        let in_a_row = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        if in_a_row >= MOST_UNANSWERED || dispatch == AttemptToken::Trial {
            self.unanswered.store(0, Ordering::Relaxed);
            self.failed(dispatch, now_ms);
        }
    }

    /// Records that the worker has no such endpoint. The pause is `rest_ms`, as after one failure.
    pub(crate) fn absent(&self, now_ms: u64, rest_ms: u64) {
        self.failures.store(1, Ordering::Relaxed);
        self.until_ms
            .store(now_ms.saturating_add(rest_ms), Ordering::Relaxed);
    }
}

fn rest(failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(5);
    (FIRST_REST_MS << doublings).min(LONGEST_REST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_from_one_second_to_thirty() {
        let rests: Vec<_> = (1..8).map(rest).collect();
        assert_eq!(rests, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn failures_of_one_outage_count_once() {
        let cooldown = Cooldown::default();
        assert!(cooldown.failed(AttemptToken::Plain, 0));
        assert!(!cooldown.failed(AttemptToken::Plain, 1));
        assert!(cooldown.is_resting(999));
        assert!(!cooldown.is_resting(1_000));
    }

    #[test]
    fn an_absent_worker_rests_as_long_as_given_and_is_then_tried() {
        let cooldown = Cooldown::default();
        cooldown.absent(5, 300_000);
        assert!(cooldown.is_resting(300_004));
        assert_eq!(cooldown.begin(300_005), AttemptToken::Trial);
        assert!(cooldown.is_resting(300_006), "the others keep away");
    }

    #[test]
    fn slow_answers_put_it_to_rest_only_when_there_are_some_in_a_row() {
        let cooldown = Cooldown::default();
        for _ in 0..10 {
            for _ in 1..MOST_UNANSWERED {
                cooldown.unanswered(AttemptToken::Plain, 0);
            }
            assert!(!cooldown.has_failed());
            cooldown.succeeded();
        }
        for _ in 0..MOST_UNANSWERED {
            cooldown.unanswered(AttemptToken::Plain, 0);
        }
        assert!(cooldown.is_resting(1));
        assert_eq!(cooldown.begin(1_000), AttemptToken::Trial);
        cooldown.unanswered(AttemptToken::Trial, 1_001);
        assert!(cooldown.is_resting(3_000), "a trial counts alone");
    }

    #[test]
    fn one_trial_at_a_time_decides_when_the_rest_is_over() {
        let cooldown = Cooldown::default();
        assert_eq!(cooldown.begin(0), AttemptToken::Plain);
        cooldown.failed(AttemptToken::Plain, 0);
        assert_eq!(cooldown.begin(1_000), AttemptToken::Trial);
        assert!(cooldown.is_resting(1_001), "the others keep away");
        assert_eq!(cooldown.begin(1_001), AttemptToken::Plain);
        assert!(cooldown.failed(AttemptToken::Trial, 1_002));
        assert!(cooldown.is_resting(3_001));
        assert_eq!(cooldown.begin(3_002), AttemptToken::Trial);
        cooldown.succeeded();
        assert!(!cooldown.is_resting(3_003));
        assert_eq!(cooldown.begin(3_003), AttemptToken::Plain);
    }
}
