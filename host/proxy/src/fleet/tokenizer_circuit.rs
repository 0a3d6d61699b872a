//! Circuit breaker for a worker's tokenizer, with exponential backoff. Pure: time is passed in.
//!
//! A failure opens the circuit for 1 s. Each further failure doubles the time, up to 30 s. After that, one trial
//! request is sent (half-open) while the others still avoid the tokenizer. If the trial succeeds, the circuit closes.
//! If it fails, the next, longer pause begins.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::fleet::health::AttemptToken;

const BASE_PAUSE_MS: u64 = 1_000;
const MAX_PAUSE_MS: u64 = 30_000;
/// Consecutive tries without an answer in time after which a pause begins. One slow answer proves nothing.
const MOST_UNANSWERED: u32 = 3;

/// Circuit breaker of relaxed atomics. Two concurrent requests may both try a tokenizer after a pause: that is
/// harmless.
#[derive(Debug, Default)]
pub(crate) struct TokenizerCircuit {
    /// End of the pause; 0 while closed.
    until_ms: AtomicU64,
    /// Consecutive failed tries.
    failures: AtomicU32,
    /// Consecutive tries that were given up without an answer.
    unanswered: AtomicU32,
}

impl TokenizerCircuit {
    /// Returns `true` if it failed and has not answered since.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures() != 0
    }

    /// Returns the number of consecutive failed tries.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns `true` while it is open: the tokenizer is to be avoided.
    pub(crate) fn is_open(&self, now_ms: u64) -> bool {
        self.until_ms.load(Ordering::Relaxed) > now_ms
    }

    /// Records that a request is about to be sent.
    pub(crate) fn begin(&self, now_ms: u64) -> AttemptToken {
        let failures = self.failures.load(Ordering::Relaxed);
        if failures == 0 || self.is_open(now_ms) {
            return AttemptToken::Plain;
        }
        // If the trial hangs, another may follow after the same time.
        self.until_ms.store(now_ms + pause(failures), Ordering::Relaxed);
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
        if dispatch == AttemptToken::Plain && self.is_open(now_ms) {
            return false;
        }
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        self.failures.store(failures, Ordering::Relaxed);
        self.until_ms.store(now_ms + pause(failures), Ordering::Relaxed);
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

    /// Records that the worker has no such endpoint. The pause is `pause_ms`, as after one failure.
    pub(crate) fn absent(&self, now_ms: u64, pause_ms: u64) {
        self.failures.store(1, Ordering::Relaxed);
        self.until_ms
            .store(now_ms.saturating_add(pause_ms), Ordering::Relaxed);
    }
}

fn pause(failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(5);
    (BASE_PAUSE_MS << doublings).min(MAX_PAUSE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_one_second_to_thirty() {
        let pauses: Vec<_> = (1..8).map(pause).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    }

    #[test]
    fn failures_of_one_outage_count_once() {
        let circuit = TokenizerCircuit::default();
        assert!(circuit.failed(AttemptToken::Plain, 0));
        assert!(!circuit.failed(AttemptToken::Plain, 1));
        assert!(circuit.is_open(999));
        assert!(!circuit.is_open(1_000));
    }

    #[test]
    fn the_circuit_of_an_absent_endpoint_is_open_as_long_as_given_and_then_tried() {
        let circuit = TokenizerCircuit::default();
        circuit.absent(5, 300_000);
        assert!(circuit.is_open(300_004));
        assert_eq!(circuit.begin(300_005), AttemptToken::Trial);
        assert!(circuit.is_open(300_006), "the others keep away");
    }

    #[test]
    fn slow_answers_open_it_only_when_there_are_some_in_a_row() {
        let circuit = TokenizerCircuit::default();
        for _ in 0..10 {
            for _ in 1..MOST_UNANSWERED {
                circuit.unanswered(AttemptToken::Plain, 0);
            }
            assert!(!circuit.has_failed());
            circuit.succeeded();
        }
        for _ in 0..MOST_UNANSWERED {
            circuit.unanswered(AttemptToken::Plain, 0);
        }
        assert!(circuit.is_open(1));
        assert_eq!(circuit.begin(1_000), AttemptToken::Trial);
        circuit.unanswered(AttemptToken::Trial, 1_001);
        assert!(circuit.is_open(3_000), "a trial counts alone");
    }

    #[test]
    fn one_trial_at_a_time_decides_when_the_pause_is_over() {
        let circuit = TokenizerCircuit::default();
        assert_eq!(circuit.begin(0), AttemptToken::Plain);
        circuit.failed(AttemptToken::Plain, 0);
        assert_eq!(circuit.begin(1_000), AttemptToken::Trial);
        assert!(circuit.is_open(1_001), "the others keep away");
        assert_eq!(circuit.begin(1_001), AttemptToken::Plain);
        assert!(circuit.failed(AttemptToken::Trial, 1_002));
        assert!(circuit.is_open(3_001));
        assert_eq!(circuit.begin(3_002), AttemptToken::Trial);
        circuit.succeeded();
        assert!(!circuit.is_open(3_003));
        assert_eq!(circuit.begin(3_003), AttemptToken::Plain);
    }
}
