//! Statistics: confidence intervals of differences between two arms.
//!
//! Requests of one session are correlated, so only sessions are independent samples. Each request counts for one of
//! [`GROUPS`] groups by the hash of its session. The variance of a mean is taken between the groups (the cluster-robust
//! estimate: Liang and Zeger, Biometrika 73, 1986).

/// Number of session groups of an arm.
pub(crate) const GROUPS: usize = 64;
/// Minimum number of groups with requests for a conclusion.
pub(crate) const MIN_GROUPS: usize = 8;

/// Most samples of one group: larger numbers are not exact as `f64`.
const MOST_COUNTED: u64 = 1 << f64::MANTISSA_DIGITS;

/// Count and sum of the samples per group.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    groups: [Group; GROUPS],
    count: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    count: f64,
    sum: f64,
}

/// Mean with its variance.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    count: f64,
    mean: f64,
    /// Variance of the mean.
    variance: f64,
    /// Degrees of freedom: groups with samples, minus one.
    freedom: f64,
}

/// Difference between two arms, with a confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Difference {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            groups: [Group::default(); GROUPS],
            count: 0,
        }
    }
}

impl Samples {
    /// Adds a sample of a group.
    pub(crate) fn add(&mut self, group: u8, value: f64) {
        let group = &mut self.groups[usize::from(group) % GROUPS];
        group.count += 1.0;
        group.sum += value;
        self.count += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the samples of both.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (group, more) in both.groups.iter_mut().zip(&other.groups) {
            group.count += more.count;
            group.sum += more.sum;
        }
        both.count = both.count.saturating_add(other.count);
        both
    }

    /// Returns count and sum of each group.
    pub(crate) fn totals(&self) -> Vec<(u64, f64)> {
        self.groups
            .iter()
            .map(|group| (group.count as u64, group.sum))
            .collect()
    }

    /// Returns the samples of totals. `None` unless they are those of all groups, with finite sums and counts that are
    /// exact as floating-point numbers.
    pub(crate) fn of_totals(totals: &[(u64, f64)]) -> Option<Self> {
        let is_valid = |(count, sum): &(u64, f64)| *count <= MOST_COUNTED && sum.is_finite();
        let are_valid = totals.len() == GROUPS && totals.iter().all(is_valid);
        are_valid.then(|| {
            let mut samples = Self::default();
            for (group, (count, sum)) in samples.groups.iter_mut().zip(totals) {
                (group.count, group.sum) = (*count as f64, *sum);
                samples.count = samples.count.saturating_add(*count);
            }
            samples
        })
    }

    /// Returns the number of groups with samples.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.iter().filter(|group| group.count > 0.0).count() as u64
    }

    /// Returns the mean, or `None` without samples.
    pub(crate) fn mean(&self) -> Option<f64> {
        let sum: f64 = self.groups.iter().map(|group| group.sum).sum();
        (self.count > 0).then(|| sum / self.count as f64)
    }

    /// Returns the estimate, or `None` if too few groups have samples.
    fn estimate(&self) -> Option<Estimate> {
        let mean = self.mean()?;
        let filled = || self.groups.iter().filter(|group| group.count > 0.0);
        let groups = filled().count();
        if groups < MIN_GROUPS {
            return None;
        }
        let (groups, count) = (groups as f64, self.count as f64);
        let squares: f64 = filled()
            .map(|group| (group.sum - group.count * mean).powi(2))
            .sum();
        Some(Estimate {
            count,
            mean,
            variance: groups / (groups - 1.0) * squares / (count * count),
            freedom: groups - 1.0,
        })
    }
}

/// Returns the difference of the means of `arm` and `control`. Each end has the error probability `alpha`.
///
/// Welch's interval with Satterthwaite's degrees of freedom (Welch, Biometrika 34, 1947). `None` with too few sessions.
pub(crate) fn difference_of_means(arm: &Samples, control: &Samples, alpha: f64) -> Option<Difference> {
    let (arm, control) = (arm.estimate()?, control.estimate()?);
    let estimate = arm.mean - control.mean;
    let variance = arm.variance + control.variance;
    let freedom = if variance > 0.0 {
        variance.powi(2) / (arm.variance.powi(2) / arm.freedom + control.variance.powi(2) / control.freedom)
    } else {
        arm.freedom
    };
    let reach = student_quantile(alpha, freedom) * variance.sqrt();
    Some(Difference {
        estimate,
        low: estimate - reach,
        high: estimate + reach,
    })
}

/// Returns the difference of the rates of `arm` and `control`, whose samples are 0 or 1.
///
/// Each end has the error probability `alpha`. Newcombe's interval from two of Wilson's (method 10 in Newcombe,
/// Statistics in Medicine 17, 1998), which also holds for shares of none, over the effective numbers of samples (Rao
/// and Scott, Biometrics 48, 1992). How much the sessions differ is estimated from them, so that each interval reaches
/// as far as Student's t of its side's groups (Korn and Graubard, Survey Methodology 24, 1998). `None` with too
/// few sessions.
///
/// If few sessions have all failures, the effective numbers are so small that a single failure is far from none. Each
/// end is therefore the wider one of this interval and Welch's ([`difference_of_means`]).
pub(crate) fn difference_of_shares(arm: &Samples, control: &Samples, alpha: f64) -> Option<Difference> {
    let welch = difference_of_means(arm, control, alpha)?;
    let (arm, control) = (arm.estimate()?, control.estimate()?);
    let (arm_low, arm_high) = wilson(arm, student_quantile(alpha, arm.freedom));
    let (control_low, control_high) = wilson(control, student_quantile(alpha, control.freedom));
    let estimate = arm.mean - control.mean;
    let reach = |a: f64, b: f64| (a * a + b * b).sqrt();
    Some(Difference {
        estimate,
        low: welch
            .low
            .min(estimate - reach(arm.mean - arm_low, control_high - control.mean)),
        high: welch
            .high
            .max(estimate + reach(arm_high - arm.mean, control.mean - control_low)),
    })
}

/// Returns Wilson's interval for a share (Journal of the American Statistical Association 22, 1927), with `z` the
/// quantile it reaches to.
fn wilson(share: Estimate, z: f64) -> (f64, f64) {
    let p = share.mean;
    let independent = p * (1.0 - p) / share.count;
    // Ratio of the clustered variance to that of independent samples.
    let design_effect = if independent > 0.0 {
        (share.variance / independent).max(1.0)
    } else {
        1.0
    };
    let n = share.count / design_effect;
    let zz = z * z;
    let centre = (p + zz / (2.0 * n)) / (1.0 + zz / n);
    let reach = z / (1.0 + zz / n) * (p * (1.0 - p) / n + zz / (4.0 * n * n)).sqrt();
    ((centre - reach).max(0.0), (centre + reach).min(1.0))
}

/// Returns the value that a standard normal variable exceeds with probability `alpha`, at most 0.5.
///
/// The error is below 0.00045 (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(alpha: f64) -> f64 {
    const ABOVE: [f64; 3] = [2.515_517, 0.802_853, 0.010_328];
    const BELOW: [f64; 3] = [1.432_788, 0.189_269, 0.001_308];
    let t = (-2.0 * alpha.ln()).sqrt();
    let above = ABOVE[0] + t * (ABOVE[1] + t * ABOVE[2]);
    let below = 1.0 + t * (BELOW[0] + t * (BELOW[1] + t * BELOW[2]));
    t - above / below
}

/// Returns the same quantile of Student's t (Abramowitz and Stegun, 26.7.5).
///
/// The error is below 2 % from 7 degrees of freedom on for the values of `alpha` used here.
fn student_quantile(alpha: f64, freedom: f64) -> f64 {
    let z = normal_quantile(alpha);
    let (z3, z5, z7, z9) = (z.powi(3), z.powi(5), z.powi(7), z.powi(9));
    let terms = [
        (z3 + z) / 4.0,
        (5.0 * z5 + 16.0 * z3 + 3.0 * z) / 96.0,
        (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / 384.0,
        (79.0 * z9 + 776.0 * z7 + 1482.0 * z5 - 1920.0 * z3 - 945.0 * z) / 92_160.0,
    ];
    let mut power = 1.0;
    terms.iter().fold(z, |sum, term| {
        power /= freedom;
        sum + term * power
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_close(found: f64, expected: f64, off: f64) {
        assert!((found - expected).abs() <= off, "{found} is not {expected}");
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (alpha, z) in [
            (0.5, 0.0),
            (0.05, 1.6449),
            (0.025, 1.96),
            (0.005, 2.5758),
            (0.0005, 3.2905),
        ] {
            check_close(normal_quantile(alpha), z, 0.000_5);
        }
        let tabled = [
            (0.05, 10.0, 1.812),
            (0.025, 7.0, 2.365),
            (0.005, 7.0, 3.499),
            (0.005, 30.0, 2.750),
            (0.0005, 10.0, 4.587),
            (0.0005, 60.0, 3.460),
        ];
        for (alpha, freedom, t) in tabled {
            check_close(student_quantile(alpha, freedom), t, 0.02 * t);
        }
    }

    /// Repeats one sample a group.
    fn samples(values: impl IntoIterator<Item = f64>) -> Samples {
        let mut samples = Samples::default();
        for (at, value) in values.into_iter().enumerate() {
            samples.add((at % GROUPS) as u8, value);
        }
        samples
    }

    fn errors(failed: usize, of: usize) -> Samples {
        // Spread, so that no group has more than its share.
        let mut samples = Samples::default();
        for at in 0..of {
            let is_failed = at * failed / of != (at + 1) * failed / of;
            samples.add((at % GROUPS) as u8, f64::from(u8::from(is_failed)));
        }
        samples
    }

    #[test]
    fn wilsons_interval_is_that_of_the_literature() {
        // Newcombe (Statistics in Medicine 17, 857-872): 81 of 263 at 95%.
        let share = Estimate {
            count: 263.0,
            mean: 81.0 / 263.0,
            variance: 0.0,
            freedom: 1.0,
        };
        let (low, high) = wilson(share, 1.96);
        check_close(low, 0.2553, 0.000_1);
        check_close(high, 0.3662, 0.000_1);
    }

    #[test]
    fn newcombes_interval_is_that_of_the_literature() {
        // Newcombe (Statistics in Medicine 17, 873-890), method 10: 56/70 against 48/80 at 95%.
        let share = |failed: f64, of: f64| Estimate {
            count: of,
            mean: failed / of,
            variance: 0.0,
            freedom: 1.0,
        };
        let (a, b) = (share(56.0, 70.0), share(48.0, 80.0));
        let ((a_low, a_high), (b_low, b_high)) = (wilson(a, 1.96), wilson(b, 1.96));
        let low = 0.2 - ((a.mean - a_low).powi(2) + (b_high - b.mean).powi(2)).sqrt();
        let high = 0.2 + ((a_high - a.mean).powi(2) + (b.mean - b_low).powi(2)).sqrt();
        check_close(low, 0.0524, 0.000_1);
        check_close(high, 0.3339, 0.000_1);
    }

    #[test]
    fn welchs_interval_holds_the_difference_and_narrows_with_more_samples() {
        let wave =
            |shift: f64, count: usize| samples((0..count).map(move |at| shift + (at * 37 % 101) as f64));
        let few = difference_of_means(&wave(10.0, 640), &wave(0.0, 640), 0.01).unwrap();
        let many = difference_of_means(&wave(10.0, 64_000), &wave(0.0, 64_000), 0.01).unwrap();
        for found in [few, many] {
            assert!(found.low < 10.0 && 10.0 < found.high, "{found:?}");
        }
        assert!(many.high - many.low < few.high - few.low);
    }

    #[test]
    fn a_share_of_failures_differs_from_none_only_with_enough_of_them() {
        let low = |failed, of| {
            difference_of_shares(&errors(failed, of), &errors(0, 4_000), 0.01)
                .unwrap()
                .low
        };
        assert!(low(3, 200) < 0.01);
        assert!(low(20, 200) > 0.04);
        assert!(low(0, 200) <= 0.0);
    }

    #[test]
    fn few_sessions_prove_nothing_however_many_requests_they_make() {
        let mut few = Samples::default();
        for at in 0..10_000_u32 {
            few.add((at % 7) as u8, 1.0);
        }
        assert_eq!(difference_of_means(&few, &samples([0.0; 640]), 0.05), None);
        assert_eq!(difference_of_shares(&samples([0.0; 640]), &few, 0.05), None);
    }

    #[test]
    fn one_session_that_fails_again_and_again_counts_as_one() {
        for (failed, good) in [(50, 1_000), (60, 140)] {
            let mut clustered = errors(0, good);
            for _ in 0..failed {
                clustered.add(3, 1.0);
            }
            let spread = errors(failed, failed + good);
            let control = errors(0, 10_000);
            let low = |arm| difference_of_shares(arm, &control, 0.01).unwrap().low;
            assert!(
                low(&clustered) < 0.01 && low(&spread) > 0.02,
                "{failed} of {good} more: {} {}",
                low(&clustered),
                low(&spread)
            );
            let high = difference_of_shares(&control, &clustered, 0.01).unwrap().high;
            assert!(high >= 0.0, "a control with such a session proves nothing either");
        }
    }
}
