//! Quantiles of values.

use serde::Serialize;

/// Mean and quantiles of some values, in their unit; NaN where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Quantiles {
    /// Number of values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Half of them are no greater.
    pub p50: f64,
    /// Nine in ten.
    pub p90: f64,
    /// Ninety-nine in a hundred.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl Quantiles {
    /// Returns the quantiles of some values, none of which is NaN.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        Self {
            count,
            mean,
            p50: at(&values, 0.5),
            p90: at(&values, 0.9),
            p99: at(&values, 0.99),
            max: at(&values, 1.0),
        }
    }
}

/// Returns the least of the sorted values that `share` of them do not exceed (nearest rank); NaN where there is none.
fn at(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_so_many_do_not_exceed() {
        let quantiles = Quantiles::of((1..=200).rev().map(f64::from));
        assert_eq!((quantiles.count, quantiles.mean), (200, 100.5));
        assert_eq!(
            (quantiles.p50, quantiles.p90, quantiles.p99),
            (100.0, 180.0, 198.0)
        );
        assert_eq!(quantiles.max, 200.0);
        assert_eq!(Quantiles::of([7.0]).p50, 7.0);
    }

    #[test]
    fn of_nothing_nothing_is_known() {
        let quantiles = Quantiles::of([]);
        assert_eq!(quantiles.count, 0);
        assert!(quantiles.mean.is_nan() && quantiles.p50.is_nan() && quantiles.max.is_nan());
    }
}
