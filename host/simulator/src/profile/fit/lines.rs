//! Least squares of a few terms, none of which takes away: the work that adds up to a time.

use serde::Serialize;

/// Residuals beyond so many standard deviations, estimated by their median, are left out once.
const OUTLYING: f64 = 5.0;
/// Standard deviations in a median absolute residual of a normal distribution.
const DEVIATIONS_IN_MEDIAN: f64 = 1.4826;
/// A pivot below this share of its column's is taken for rounding.
const LEAST_PIVOT: f64 = 1e-9;

/// Terms of a step, and its measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredStep<const TERMS: usize = 3> {
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

/// Costs of the terms, and the samples that they were fitted to.
#[derive(Debug)]
pub(super) struct FittedTerms<const TERMS: usize> {
    pub(super) factors: [f64; TERMS],
    /// Flag of each sample: set unless it was left out.
    is_used: Vec<bool>,
}

/// Place among the used terms of one that is a combination of those before it, in all samples.
#[derive(Debug, Clone, Copy)]
struct DependentTerm(usize);

/// Fits the cost of each term, at least 0, and its quality ([`fit_terms`]).
pub(super) fn fit<const TERMS: usize>(
    samples: &[MeasuredStep<TERMS>],
    kept: usize,
) -> Option<([f64; TERMS], FitQuality)> {
    let fitted = fit_terms(samples, kept)?;
    Some((fitted.factors, fitted.quality(samples, 0)))
}

/// Fits the cost of each term, at least 0. Where the samples cannot separate some terms, the last of these is given up;
/// if it is `kept`, the one before it. `None` where no term can be fitted.
pub(super) fn fit_terms<const TERMS: usize>(
    samples: &[MeasuredStep<TERMS>],
    kept: usize,
) -> Option<FittedTerms<TERMS>> {
    let first = not_negative(samples, kept)?;
    let is_usual = usual(samples, &first);
    let used: Vec<_> = samples
        .iter()
        .zip(&is_usual)
        .filter_map(|(sample, is_usual)| is_usual.then_some(*sample))
        .collect();
    if used.len() * 2 <= samples.len() {
        let is_used = vec![true; samples.len()];
        return Some(FittedTerms {
            factors: first,
            is_used,
        });
    }
    Some(FittedTerms {
        factors: not_negative(&used, kept)?,
        is_used: is_usual,
    })
}

impl<const TERMS: usize> FittedTerms<TERMS> {
    /// Returns the quality for some of the samples, which are those from `from` on.
    pub(super) fn quality(&self, samples: &[MeasuredStep<TERMS>], from: usize) -> FitQuality {
        let is_used = self.is_used.iter().skip(from);
        let used: Vec<_> = samples
            .iter()
            .zip(is_used)
            .filter_map(|(sample, is_used)| is_used.then_some(*sample))
            .collect();
        FitQuality {
            samples: samples.len(),
            left_out: samples.len() - used.len(),
            r2: r2(&used, &self.factors),
            median_error: median(
                samples
                    .iter()
                    .map(|sample| (predicted(sample, &self.factors) / sample.took - 1.0).abs()),
            ),
        }
    }
}

/// Returns the median; NaN of nothing.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn predicted<const TERMS: usize>(sample: &MeasuredStep<TERMS>, factors: &[f64; TERMS]) -> f64 {
    sample
        .terms
        .iter()
        .zip(factors)
        .map(|(term, factor)| term * factor)
        .sum()
}

/// Returns for each sample whether it is near the fit.
fn usual<const TERMS: usize>(samples: &[MeasuredStep<TERMS>], factors: &[f64; TERMS]) -> Vec<bool> {
    let residual = |sample: &MeasuredStep<TERMS>| (sample.took - predicted(sample, factors)).abs();
    let far = OUTLYING * DEVIATIONS_IN_MEDIAN * median(samples.iter().map(residual));
    samples.iter().map(|sample| residual(sample) <= far).collect()
}

fn r2<const TERMS: usize>(samples: &[MeasuredStep<TERMS>], factors: &[f64; TERMS]) -> f64 {
    let mean = samples.iter().map(|sample| sample.took).sum::<f64>() / samples.len() as f64;
    let around = |sample: &MeasuredStep<TERMS>, of: f64| (sample.took - of).powi(2);
    let rest: f64 = samples
        .iter()
        .map(|sample| around(sample, predicted(sample, factors)))
        .sum();
    let all: f64 = samples.iter().map(|sample| around(sample, mean)).sum();
    if all > 0.0 { 1.0 - rest / all } else { f64::NAN }
}

/// Drops the most negative term, or one that cannot be fitted, until none is left.
fn not_negative<const TERMS: usize>(samples: &[MeasuredStep<TERMS>], kept: usize) -> Option<[f64; TERMS]> {
    let mut scales = [0.0_f64; TERMS];
    for sample in samples {
        for (scale, term) in scales.iter_mut().zip(sample.terms) {
            *scale = scale.max(term.abs());
        }
    }
    let mut used: Vec<usize> = (0..TERMS).filter(|&term| scales[term] > 0.0).collect();
    while !used.is_empty() {
        let solved = match solve(samples, &used, &scales) {
            Ok(solved) => solved,
            Err(dependent) if used[dependent.0] == kept => {
                used.remove(replaceable(samples, &used, &scales, dependent));
                continue;
            }
            Err(dependent) => {
                used.remove(dependent.0);
                continue;
            }
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

/// Returns the place of the nearest term before the dependent one without which that one can be fitted. The dependent
/// one's own if rounding leaves none.
fn replaceable<const TERMS: usize>(
    samples: &[MeasuredStep<TERMS>],
    used: &[usize],
    scales: &[f64; TERMS],
    dependent: DependentTerm,
) -> usize {
    let separates = |at: &usize| {
        let mut rest = used[..=dependent.0].to_vec();
        rest.remove(*at);
        solve(samples, &rest, scales).is_ok()
    };
    (0..dependent.0).rev().find(separates).unwrap_or(dependent.0)
}

/// Solves the normal equations of these terms, each divided by its scale.
///
/// # Errors
/// The first term that the samples do not separate from those before it.
fn solve<const TERMS: usize>(
    samples: &[MeasuredStep<TERMS>],
    used: &[usize],
    scales: &[f64; TERMS],
) -> Result<Vec<f64>, DependentTerm> {
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
            return Err(DependentTerm(at));
        }
        let pivot = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let share = row[at] / pivot[at];
            for (cell, above) in row.iter_mut().zip(&pivot) {
                *cell -= share * above;
            }
        }
    }
    Ok((0..size).map(|at| rows[at][size] / rows[at][at]).collect())
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
    fn check(factors: [f64; 3], expected: [f64; 3]) {
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
    fn terms_that_the_samples_do_not_distinguish_are_given_up_in_their_order() {
        let same = vec![sample(100.0, 50.0, 20.0); 10];
        let (factors, quality) = fit(&same, 1).unwrap();
        check(factors, [0.0, 0.2, 0.0]);
        assert!(quality.r2.is_nan(), "they all took the same");
        check(fit(&same, 0).unwrap().0, [20.0, 0.0, 0.0]);
        assert_eq!(fit::<3>(&[], 0), None);
    }

    #[test]
    fn a_term_that_the_samples_distinguish_is_fitted_beside_those_that_they_do_not() {
        let samples: Vec<MeasuredStep> = (0..20)
            .map(f64::from)
            .map(|n| MeasuredStep {
                terms: [1.0, 100.0, n],
                took: 20.0 + 3.0 * n,
            })
            .collect();
        check(fit(&samples, 1).unwrap().0, [0.0, 0.2, 3.0]);
        check(fit(&samples, 0).unwrap().0, [20.0, 0.0, 3.0]);
    }
}
