//! Share of the tokens cached elsewhere that a worker does not compute, learned from the cached tokens of its answers.
//!
//! Engines over a shared store, or with a transfer between their caches, fetch a prefix that another worker holds.
//! The router takes no part in it, and no configuration states it: the counts of cached tokens show it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Answers before the share is known.
const ENOUGH: u32 = 4;
/// Least difference of two matches that shows a fetch, in tokens: less is rounding to blocks.
const LEAST_TOKENS: u32 = 512;
/// Weight of the newest answer in the average, once there are more than its reciprocal.
const NEWEST: f64 = 1.0 / 16.0;

/// Moving average of the share, read without its lock.
#[derive(Debug)]
pub(super) struct FetchedShare {
    samples: Mutex<ShareSamples>,
    /// Bits of f64, NaN while unknown.
    shown: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct ShareSamples {
    answers: u32,
    share: f64,
}

impl Default for FetchedShare {
    fn default() -> Self {
        Self {
            samples: Mutex::default(),
            shown: AtomicU64::new(f64::NAN.to_bits()),
        }
    }
}

impl FetchedShare {
    /// Records an answer with so many cached tokens. The worker held `own` tokens of the prompt, another `best`.
    pub(super) fn learn(&self, own: u32, best: u32, cached: u64) {
        let more = best.saturating_sub(own);
        if more < LEAST_TOKENS {
            return;
        }
        let fetched = cached.saturating_sub(own.into()) as f64 / f64::from(more);
        let mut seen = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        seen.answers = seen.answers.saturating_add(1);
        let weight = NEWEST.max(1.0 / f64::from(seen.answers));
        seen.share += (fetched.min(1.0) - seen.share) * weight;
        if seen.answers >= ENOUGH {
            self.shown.store(seen.share.to_bits(), Ordering::Relaxed);
        }
    }

    /// Returns the share; NaN while there are too few answers.
    #[inline]
    pub(super) fn get(&self) -> f64 {
        f64::from_bits(self.shown.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_tokens_that_only_another_held() {
        let share = FetchedShare::default();
        for _ in 0..ENOUGH {
            assert!(share.get().is_nan());
            share.learn(1_000, 3_000, 2_000);
        }
        assert_eq!(share.get(), 0.5);
        (0..200).for_each(|_| share.learn(1_000, 3_000, 9_000));
        assert!(
            share.get() > 0.99 && share.get() <= 1.0,
            "more than the index knew of"
        );
        (0..200).for_each(|_| share.learn(1_000, 3_000, 0));
        assert!(share.get() < 0.01, "the worker evicted its own prefix too");
    }

    #[test]
    fn an_answer_from_the_best_holder_shows_nothing() {
        let share = FetchedShare::default();
        (0..50).for_each(|_| share.learn(3_000, 3_000 + LEAST_TOKENS - 1, 3_000));
        (0..50).for_each(|_| share.learn(3_000, 2_000, 3_000));
        assert!(share.get().is_nan());
    }
}
