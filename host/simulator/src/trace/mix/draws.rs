//! Random numbers of the shapes that the mixes need, all from one seed.

use routing::SplitMix64;

use super::kind::Mix;

/// The sequence of one trace.
#[derive(Debug)]
pub(super) struct Draws(SplitMix64);

/// A distribution by its percentiles: pairs of a share of all values, rising from 0 to 1, and the value that this share
/// does not exceed. Between two of them it is even.
pub(super) type Percentiles = [(f64, f64)];

/// Popularity of several things, where a few are wanted by most: the n-th with a weight of 1/n (Zipf).
#[derive(Debug)]
pub(super) struct Popularity {
    /// Sum of the weights up to each.
    sums: Vec<f64>,
}

impl Draws {
    /// Returns the random numbers of a mix. Every mix has its own sequence of a seed.
    pub(super) fn of(seed: u64, mix: Mix) -> Self {
        Self(SplitMix64::of_decision(seed, mix as u32))
    }

    /// Returns a number from 0 to 1, without 1.
    pub(super) fn share(&mut self) -> f64 {
        // 53 bits are what an f64 holds exactly.
        (self.0.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    /// Returns the time between two of many independent arrivals, whose mean distance is 1 (exponential).
    pub(super) fn wait(&mut self) -> f64 {
        -(1.0 - self.share()).ln()
    }

    /// Returns a number from `low` to `high`, both possible.
    pub(super) fn tokens(&mut self, low: u32, high: u32) -> u32 {
        low + (self.share() * f64::from(high - low + 1)) as u32
    }

    pub(super) fn value(&mut self, percentiles: &Percentiles) -> f64 {
        value_at(percentiles, self.share())
    }

    /// Returns a value in whole tokens, at least 1.
    pub(super) fn length(&mut self, percentiles: &Percentiles) -> u32 {
        self.value(percentiles).round().max(1.0) as u32
    }

    /// Returns an index, counted from 0.
    pub(super) fn popular(&mut self, among: &Popularity) -> usize {
        let whole = among.sums.last().copied().unwrap_or_default();
        let wanted = self.share() * whole;
        among.sums.partition_point(|&sum| sum <= wanted)
    }
}

/// Returns the value that this share of all values does not exceed.
pub(super) fn value_at(percentiles: &Percentiles, share: f64) -> f64 {
    let above = percentiles
        .partition_point(|&(upto, _)| upto <= share)
        .clamp(1, percentiles.len() - 1);
    let (from, low) = percentiles[above - 1];
    let (upto, high) = percentiles[above];
    low + (high - low) * (share - from) / (upto - from)
}

impl Popularity {
    /// Returns the popularity of `things`, which is above 0.
    pub(super) fn of(things: u32) -> Self {
        let weights = (1..=things).scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        });
        Self {
            sums: weights.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: &Percentiles = &[(0.0, 0.0), (0.5, 10.0), (1.0, 110.0)];

    fn mean(mut draw: impl FnMut(&mut Draws) -> f64) -> f64 {
        let mut draws = Draws::of(1, Mix::Rag);
        (0..20_000).map(|_| draw(&mut draws)).sum::<f64>() / 20_000.0
    }

    fn check(found: f64, wanted: f64) {
        assert!(
            (found / wanted - 1.0).abs() < 0.03,
            "{found} is not about {wanted}"
        );
    }

    #[test]
    fn draws_have_the_means_of_their_distributions() {
        check(mean(Draws::share), 0.5);
        check(mean(Draws::wait), 1.0);
        check(mean(|draws| f64::from(draws.tokens(3, 7))), 5.0);
        check(mean(|draws| draws.value(EVEN)), 0.5 * 5.0 + 0.5 * 60.0);
        check(mean(|draws| f64::from(u8::from(draws.chance(0.3)))), 0.3);
    }

    #[test]
    fn the_first_of_three_is_wanted_six_times_in_eleven() {
        let among = Popularity::of(3);
        check(
            mean(|draws| f64::from(u8::from(draws.popular(&among) == 0))),
            6.0 / 11.0,
        );
        assert!(mean(|draws| draws.popular(&among) as f64) < 2.0);
    }

    #[test]
    fn mixes_draw_differently_from_the_same_seed() {
        assert_ne!(Draws::of(1, Mix::Rag).share(), Draws::of(1, Mix::Agents).share());
    }
}
