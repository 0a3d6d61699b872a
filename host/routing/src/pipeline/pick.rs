//! Choice of one candidate by the figures.

use super::spec::Pick;
use crate::random::SplitMix64;

impl Pick {
    /// Picks one of `left`, which are rows of `figures` and never none; no figure of theirs is NaN.
    pub(super) fn one(self, left: &[u32], figures: &[f64], random: &mut SplitMix64) -> u32 {
        let figure = |row: u32| figures[row as usize];
        match self {
            Self::Max => {
                let figures = left.iter().map(|row| (*row, figure(*row)));
                highest(figures, random).map_or(left[0], |(row, _)| row)
            }
            Self::Softmax { temperature } => softly(left, figure, temperature, random),
            Self::PowerOfTwo => better_of_two(left, figure, random),
        }
    }
}

/// Returns the row with the highest figure, and that; of equal ones any. A NaN is none, and without a figure there is
/// no row.
pub fn highest(figures: impl IntoIterator<Item = (u32, f64)>, random: &mut SplitMix64) -> Option<(u32, f64)> {
    let mut figures = figures.into_iter().filter(|(_, figure)| !figure.is_nan());
    let mut best = figures.next()?;
    let mut equals = 1;
    for (row, figure) in figures {
        if figure > best.1 {
            (best, equals) = ((row, figure), 1);
        } else if figure == best.1 {
            equals += 1;
            // Of the equal ones seen so far each stays with the same chance.
            if random.next().is_multiple_of(equals) {
                best = (row, figure);
            }
        }
    }
    Some(best)
}

fn softly(left: &[u32], figure: impl Fn(u32) -> f64, temperature: f64, random: &mut SplitMix64) -> u32 {
    let most = left.iter().map(|row| figure(*row)).fold(f64::MIN, f64::max);
    // The highest has the chance 1, so that the sum is never 0.
    let chance = |row: &u32| ((figure(*row) - most) / temperature).exp();
    let sum: f64 = left.iter().map(chance).sum();
    // 53 bits, as many as a double holds.
    let mut drawn = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
    for row in left {
        drawn -= chance(row);
        if drawn < 0.0 {
            return *row;
        }
    }
    // Rounding left something over.
    left[left.len() - 1]
}

fn better_of_two(left: &[u32], figure: impl Fn(u32) -> f64, random: &mut SplitMix64) -> u32 {
    let count = left.len() as u64;
    let first = random.next() % count;
    if count == 1 {
        return left[0];
    }
    // Another than the first.
    let second = (first + 1 + random.next() % (count - 1)) % count;
    let [first, second] = [first, second].map(|at| left[at as usize]);
    if figure(second) > figure(first) {
        second
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 8_000;

    /// Counts the picks of each of four rows; row 1 is filtered out.
    fn counts(pick: Pick, figures: [f64; 4]) -> [u64; 4] {
        let mut counts = [0; 4];
        for seq in 0..DRAWS {
            let mut random = SplitMix64::of_decision(seq, 0);
            counts[pick.one(&[0, 2, 3], &figures, &mut random) as usize] += 1;
        }
        counts
    }

    /// Checks the shares within 3 of 100.
    #[track_caller]
    fn check(pick: Pick, figures: [f64; 4], shares: [f64; 4]) {
        let counts = counts(pick, figures);
        for (count, share) in counts.iter().zip(shares) {
            let found = *count as f64 / DRAWS as f64;
            assert!((found - share).abs() < 0.03, "{counts:?}, not {shares:?}");
        }
    }

    #[test]
    fn max_takes_the_highest_and_equal_ones_equally() {
        check(Pick::Max, [0.1, 1.0, 0.9, 0.2], [0.0, 0.0, 1.0, 0.0]);
        check(
            Pick::Max,
            [0.5, 1.0, 0.5, 0.5],
            [1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0 / 3.0],
        );
    }

    #[test]
    fn a_nan_figure_is_never_the_highest() {
        let mut random = SplitMix64::of_decision(1, 0);
        let mut highest = |figures: &[f64]| highest((0..).zip(figures.iter().copied()), &mut random);
        assert_eq!(highest(&[f64::NAN, 1.0, 3.0, f64::NAN]), Some((2, 3.0)));
        assert_eq!(highest(&[f64::NAN, f64::NAN]), None);
    }

    #[test]
    fn softmax_takes_each_by_its_figure() {
        let softmax = |temperature| Pick::Softmax { temperature };
        let e = std::f64::consts::E;
        let sum = 1.0 + e + e * e;
        check(
            softmax(0.1),
            [0.0, 1.0, 0.1, 0.2],
            [1.0 / sum, 0.0, e / sum, e * e / sum],
        );
        check(softmax(1e-9), [0.0, 1.0, 0.1, 0.2], [0.0, 0.0, 0.0, 1.0]);
        check(
            softmax(1e9),
            [0.0, 1.0, 0.1, 0.2],
            [1.0 / 3.0, 0.0, 1.0 / 3.0, 1.0 / 3.0],
        );
    }

    #[test]
    fn of_two_the_better_is_taken_so_that_the_worst_never_is() {
        check(
            Pick::PowerOfTwo,
            [0.1, 1.0, 0.9, 0.2],
            [0.0, 0.0, 2.0 / 3.0, 1.0 / 3.0],
        );
    }

    #[test]
    fn one_that_is_alone_is_taken() {
        for pick in [Pick::Max, Pick::Softmax { temperature: 0.1 }, Pick::PowerOfTwo] {
            let mut random = SplitMix64::of_decision(1, 0);
            assert_eq!(pick.one(&[2], &[0.0, 0.0, 0.0], &mut random), 2);
        }
    }
}
