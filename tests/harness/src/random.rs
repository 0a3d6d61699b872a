//! Seeded random choices of a long run.

use std::time::Duration;

use routing::SplitMix64;

/// A sequence of numbers.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Returns the sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::of_decision(seed, 0))
    }

    /// Returns a number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end as u64) as usize
    }

    /// Returns `true` once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of these; there is at least one.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns a time from the one to the other, in milliseconds.
    pub fn ms(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis((from + self.below(to - from)) as u64)
    }
}
