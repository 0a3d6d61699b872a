//! Least squares of three terms, none of which takes away: the work that adds up to a time.

use serde::Serialize;

/// Terms of a sample.
pub(super) const TERMS: usize = 3;

/// Residuals beyond so many standard deviations, estimated by their median, are left out once.
const OUTLYING: f64 = 5.0;
/// Standard deviations in a median absolute residual of a normal distribution.
const DEVIATIONS_IN_MEDIAN: f64 = 1.4826;
/// A pivot below this share of its column's is taken for rounding.
const LEAST_PIVOT: f64 = 1e-9;

/// Terms of a step, and its measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredStep {
    pub(super) terms: [f64; TERMS],
    pub(super) took: f64,
}

/// Quality of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FitQuality {
    /// Measured times that there were.
    pub samples: usize,
    /// Samples among them that were left out, being far from all others.
    pub left_out: usize,
    /// Share of the variance that the fit explains, of those that were not left out; NaN where all of them took the
    /// same.
    pub r2: f64,
    /// Median over all samples of the error, as a share of the measured time.
    pub median_error: f64,
}

/// Fits the cost of each term, at least 0. Where the samples cannot separate terms, the third is given up first, and
/// `kept` last. `None` where no term can be fitted.
pub(super) fn fit(samples: &[MeasuredStep], kept: usize) -> Option<([f64; TERMS], FitQuality)> {
    let first = not_negative(samples, kept)?;
    let usual = usual(samples, &first);
    let (factors, used) = match usual.len() * 2 > samples.len() {
        true => (not_negative(&usual, kept)?, usual.as_slice()),
        false => (first, samples),
    };
    let quality = FitQuality {
        samples: samples.len(),
        left_out: samples.len() - used.len(),
        r2: r2(used, &factors),
        median_error: median(
            samples
                .iter()
                .map(|sample| (predicted(sample, &factors) / sample.took - 1.0).abs()),
        ),
    };
    Some((factors, quality))
}

/// Returns the median; NaN of nothing.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn predicted(sample: &MeasuredStep, factors: &[f64; TERMS]) -> f64 {
    sample
        .terms
        .iter()
        .zip(factors)
        .map(|(term, factor)| term * factor)
        .sum()
}

/// Returns the samples that are near the fit.
fn usual(samples: &[MeasuredStep], factors: &[f64; TERMS]) -> Vec<MeasuredStep> {
    let residual = |sample: &MeasuredStep| (sample.took - predicted(sample, factors)).abs();
    let far = OUTLYING * DEVIATIONS_IN_MEDIAN * median(samples.iter().map(residual));
    samples
        .iter()
        .copied()
        .filter(|sample| residual(sample) <= far)
        .collect()
}

fn r2(samples: &[MeasuredStep], factors: &[f64; TERMS]) -> f64 {
    let mean = samples.iter().map(|sample| sample.took).sum::<f64>() / samples.len() as f64;
    let around = |sample: &MeasuredStep, of: f64| (sample.took - of).powi(2);
    let rest: f64 = samples
        .iter()
        .map(|sample| around(sample, predicted(sample, factors)))
        .sum();
    let all: f64 = samples.iter().map(|sample| around(sample, mean)).sum();
    if all > 0.0 { 1.0 - rest / all } else { f64::NAN }
}

/// Drops the most negative term, or one that cannot be fitted, until none is left.
fn not_negative(samples: &[MeasuredStep], kept: usize) -> Option<[f64; TERMS]> {
    let mut scales = [0.0_f64; TERMS];
    for sample in samples {
        for (scale, term) in scales.iter_mut().zip(sample.terms) {
            *scale = scale.max(term.abs());
        }
    }
    let mut used: Vec<usize> = (0..TERMS).filter(|&term| scales[term] > 0.0).collect();
    while !used.is_empty() {
        let Some(solved) = solve(samples, &used, &scales) else {
            let given_up = used.iter().rposition(|&term| term != kept).unwrap_or(0);
            used.remove(given_up);
            continue;
        };
        let least = solved
            .iter()
            .enumerate()
            .min_by(|one, other| one.1.total_cmp(other.1));
        match least {
            Some((at, value)) if *value < 0.0 => {
                used.remove(at);
            }
            _ => {
                let mut factors = [0.0; TERMS];
                for (&term, value) in used.iter().zip(solved) {
                    factors[term] = value / scales[term];
                }
                return Some(factors);
            }
        }
    }
    None
}

/// Solves the normal equations of these terms, each divided by its scale. `None` where they have no single solution.
fn solve(samples: &[MeasuredStep], used: &[usize], scales: &[f64; TERMS]) -> Option<Vec<f64>> {
    let size = used.len();
    let mut rows = vec![vec![0.0; size + 1]; size];
    for sample in samples {
        let term = |at: usize| sample.terms[used[at]] / scales[used[at]];
        for (at, row) in rows.iter_mut().enumerate() {
            for (other, cell) in row[..size].iter_mut().enumerate() {
                *cell += term(at) * term(other);
            }
            row[size] += term(at) * sample.took;
        }
    }
    let diagonal: Vec<f64> = (0..size).map(|at| rows[at][at]).collect();
    for at in 0..size {
        // Without exchanges: what is solved is symmetric and has no negative pivot.
        if rows[at][at] <= LEAST_PIVOT * diagonal[at] {
            return None;
        }
        let pivot = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let share = row[at] / pivot[at];
            for (cell, above) in row.iter_mut().zip(&pivot) {
                *cell -= share * above;
            }
        }
    }
    Some((0..size).map(|at| rows[at][size] / rows[at][at]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(uncached: f64, cached: f64, took: f64) -> MeasuredStep {
        MeasuredStep {
            terms: [1.0, uncached, cached],
            took,
        }
    }

    fn line(uncached: f64, cached: f64) -> MeasuredStep {
        sample(uncached, cached, 8.0 + 0.06 * uncached + 0.002 * cached)
    }

    #[track_caller]
    fn check(factors: [f64; TERMS], expected: [f64; TERMS]) {
        for (factor, expected) in factors.iter().zip(expected) {
            assert!(
                (factor - expected).abs() <= 1e-6,
                "{factors:?} instead of {expected:?}"
            );
        }
    }

    #[test]
    fn a_plane_is_found_again_and_what_lies_far_from_it_left_out() {
        let mut samples: Vec<MeasuredStep> = (0..60)
            .map(|n| line(f64::from(n * 37 % 500), f64::from(n * 101 % 900)))
            .collect();
        samples.push(sample(100.0, 0.0, 5_000.0));
        let (factors, quality) = fit(&samples, 1).unwrap();
        check(factors, [8.0, 0.06, 0.002]);
        assert_eq!((quality.samples, quality.left_out), (61, 1));
        assert!(
            quality.r2 > 0.999_999 && quality.median_error < 1e-6,
            "{quality:?}"
        );
    }

    #[test]
    fn nothing_takes_less_time_than_none() {
        let falling: Vec<MeasuredStep> = (0..20)
            .map(f64::from)
            .map(|n| sample(n, n * n, 10.0 + n - 0.01 * n * n))
            .collect();
        let (factors, _) = fit(&falling, 1).unwrap();
        assert!(factors.iter().all(|factor| *factor >= 0.0), "{factors:?}");
        assert_eq!(factors[2], 0.0);
    }

    #[test]
    fn terms_that_the_samples_do_not_tell_apart_are_given_up_in_their_order() {
        let same = vec![sample(100.0, 50.0, 20.0); 10];
        let (factors, quality) = fit(&same, 1).unwrap();
        check(factors, [0.0, 0.2, 0.0]);
        assert!(quality.r2.is_nan(), "they all took the same");
        check(fit(&same, 0).unwrap().0, [20.0, 0.0, 0.0]);
        assert_eq!(fit(&[], 0), None);
    }
}
