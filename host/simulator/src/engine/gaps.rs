//! Times between the tokens of a request.

/// Statistics of the gaps. An answer of one token has none, and all is 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TokenGaps {
    /// Their number.
    pub(crate) count: u32,
    /// Their mean, in microseconds.
    pub(crate) mean_us: f64,
    /// The mean of the longest tenth of them (rounded up to a whole number of gaps), in microseconds: what the Mooncake
    /// paper calls TBT (FAST '25; `mooncake-paper.md`, section 5).
    pub(crate) tbt_us: f64,
    /// The longest, in microseconds.
    pub(crate) max_us: u64,
}

impl TokenGaps {
    /// Returns the gaps of tokens that came at these times, in microseconds, in order.
    pub(super) fn of(times: impl Iterator<Item = u64>) -> Self {
        let mut last = None;
        let mut gaps: Vec<u64> = times
            .filter_map(|at| last.replace(at).map(|before| at.saturating_sub(before)))
            .collect();
        if gaps.is_empty() {
            return Self::default();
        }
        let count = gaps.len();
        let sum: u64 = gaps.iter().sum();
        let tenth = count.div_ceil(10);
        let (longer, shortest, _) = gaps.select_nth_unstable_by(tenth - 1, |a, b| b.cmp(a));
        let longest = longer.iter().chain([&*shortest]);
        Self {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            mean_us: sum as f64 / count as f64,
            tbt_us: longest.clone().sum::<u64>() as f64 / tenth as f64,
            max_us: longest.copied().max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_tokens_is_the_mean_of_the_longest_tenth() {
        let mut at = 0;
        // Gaps of 10, but for 50 and 30; two are a tenth of twenty.
        let gaps = [10, 10, 50, 10, 30].into_iter().chain([10; 15]);
        let times: Vec<u64> = std::iter::once(0)
            .chain(gaps.map(|gap| {
                at += gap;
                at
            }))
            .collect();
        let found = TokenGaps::of(times.into_iter());
        assert_eq!((found.count, found.max_us), (20, 50));
        assert_eq!((found.tbt_us, found.mean_us), (40.0, 13.0));
    }

    #[test]
    fn a_tenth_is_at_least_one_gap() {
        let found = TokenGaps::of([5, 8, 10].into_iter());
        assert_eq!((found.count, found.tbt_us), (2, 3.0));
        assert_eq!(TokenGaps::of([5].into_iter()), TokenGaps::default());
    }
}
