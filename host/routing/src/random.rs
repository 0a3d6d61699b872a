//! Random numbers that a recorded decision can repeat.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): one addition and a
/// mix a number, any seed is a good one.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

/// Random number of one process, mixed into every seed, so that two routers that count their requests alike draw
/// different lots.
///
/// 0 is that of recordings from before there were run numbers: a request's seed is its number alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunNumber(pub u64);

impl RunNumber {
    /// Returns the seed of the request with this number in this run. Requests that follow each other have seeds that
    /// do.
    #[must_use]
    pub fn seed(self, seq: u64) -> u64 {
        self.0.wrapping_add(seq)
    }
}

impl SplitMix64 {
    /// Returns the sequence of one decision, by the request's seed.
    #[must_use]
    pub fn of_decision(seed: u64, attempt: u32) -> Self {
        let first = Self(seed).next();
        Self(first ^ u64::from(attempt))
    }

    /// Uniform over all 64-bit values.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and no caller iterates over it"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Integer hash finaliser (SplitMix64): maps sequential numbers to uniformly distributed values, for percentage
/// sampling.
#[must_use]
pub fn hash_mix(number: u64) -> u64 {
    SplitMix64(number).next()
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

    #[test]
    fn two_routers_break_a_thousand_ties_independently() {
        // Both count their requests alike, and each has ten equal workers to choose from.
        let choice = |run, seq| SplitMix64::of_decision(RunNumber(run).seed(seq), 0).next() % 10;
        let runs = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
        let same = (1..=1_000).filter(|seq| choice(runs[0], *seq) == choice(runs[1], *seq));
        let same = same.count();
        assert!(
            (60..=140).contains(&same),
            "{same} of 1,000 are alike, and 100 are by chance"
        );
    }

    #[test]
    fn a_request_of_the_same_number_draws_something_else_in_another_run() {
        let drawn = |run: u64| -> Vec<u64> {
            let lots = (1..=16).map(|seq| SplitMix64::of_decision(RunNumber(run).seed(seq), 0).next());
            lots.collect()
        };
        assert_eq!(drawn(7 << 40), drawn(7 << 40));
        assert_ne!(drawn(7 << 40), drawn(8 << 40));
        assert_eq!(
            RunNumber::default().seed(3),
            3,
            "recordings without a run number replay as they were"
        );
    }
}
