//! Estimate of a figure over seeds: mean and confidence interval.

use serde::Serialize;

/// A mean over seeds. Seeds that have no such figure (nothing was served, nothing computed) do not count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Estimate {
    /// Mean. `None` where no seed has the figure.
    pub(super) mean: Option<f64>,
    /// Half the width of the 95 % confidence interval of the mean (Student's t); none of fewer than two seeds.
    pub(super) half_width: Option<f64>,
}

impl Estimate {
    /// Estimates the mean of one value for each seed. Values that are not finite do not count.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let half_width = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            student(values.len() - 1) * (squares / (count - 1.0) / count).sqrt()
        });
        Self {
            mean: (!values.is_empty()).then_some(mean),
            half_width,
        }
    }
}

/// Returns the 97.5 % quantile of Student's t with so many degrees of freedom. Values up to 9 are from the usual
/// tables. From there on, three terms of Abramowitz and Stegun's 26.7.5 are used, which are right to four digits then.
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    const NORMAL: f64 = 1.959_964;
    if let Some(quantile) = freedom.checked_sub(1).and_then(|at| FEW.get(at)) {
        return *quantile;
    }
    let (z, v) = (NORMAL, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / v + second / v.powi(2) + third / v.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Standard deviation 1.5811, over the root of 5, times 2.776.
        let five = Estimate::of([1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(five.mean, Some(3.0));
        assert!((five.half_width.unwrap() - 1.9629).abs() < 1e-3, "{five:?}");
        for (freedom, tabled) in [(10, 2.228), (20, 2.086), (30, 2.042), (120, 1.980)] {
            assert!((student(freedom) - tabled).abs() < 1e-3, "{freedom}");
        }
    }

    #[test]
    fn of_one_seed_nothing_is_known_of_others_and_of_none_nothing_at_all() {
        let one = Estimate::of([7.0]);
        assert_eq!((one.mean, one.half_width), (Some(7.0), None));
        let none = Estimate::of([f64::NAN, f64::INFINITY]);
        assert_eq!((none.mean, none.half_width), (None, None));
    }

    #[test]
    fn seeds_without_the_figure_do_not_count() {
        let two = Estimate::of([1.0, f64::NAN, 3.0]);
        assert_eq!(two.mean, Some(2.0));
        assert!((two.half_width.unwrap() - 12.706).abs() < 1e-9);
    }
}
