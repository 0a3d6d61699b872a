//! Randomness that a recorded decision can repeat.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): one addition and a
/// mix a number, any seed is a good one.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of one decision.
    #[must_use]
    pub fn of_decision(seq: u64, attempt: u32) -> Self {
        let first = Self(seq).next();
        Self(first ^ u64::from(attempt))
    }

    /// Uniform over all 64-bit values.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and nobody iterates over it"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence_for_seed_0() {
        let mut random = SplitMix64(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn repeats_for_the_same_decision_and_differs_for_another_attempt() {
        let first = |seq, attempt| SplitMix64::of_decision(seq, attempt).next();
        assert_eq!(first(7, 0), first(7, 0));
        assert_ne!(first(7, 0), first(7, 1));
        assert_ne!(first(7, 0), first(8, 0));
    }
}
