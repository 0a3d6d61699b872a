//! A line through the last samples: least squares whose slopes are not below 0, with Huber's weights against outliers
//! (Huber 1964; the scale is the median absolute deviation), found by reweighting a few times.

/// Samples looked at: what came before is forgotten, so that a worker that became slower is believed soon.
const WINDOW: usize = 128;
/// Samples between two fits: a fit costs some microseconds.
const PACE: usize = 8;
/// Rounds of reweighting. Each leaves about a quarter of what outliers moved before.
const ROUNDS: usize = 8;
/// Deviations over this many times the usual one count less: 95 % efficient where errors are normal (Huber 1964).
const HUBER: f64 = 1.345;
/// The usual deviation of a normal error is so many times its median absolute one.
const NORMAL: f64 = 1.4826;
/// Keeps a slope without samples at 0, and changes no other noticeably.
const RIDGE: f64 = 1e-9;

/// The fit of `N` coefficients, at most 8: the first a constant, the rest slopes.
#[derive(Debug, Clone)]
pub(super) struct Fit<const N: usize> {
    coefficients: [f64; N],
    /// The newest overwrite the oldest.
    samples: Vec<Sample<N>>,
    seen: usize,
}

#[derive(Debug, Clone, Copy)]
struct Sample<const N: usize> {
    /// Point whose first member is 1.
    point: [f64; N],
    value: f64,
}

impl<const N: usize> Default for Fit<N> {
    fn default() -> Self {
        Self {
            coefficients: [0.0; N],
            samples: Vec::new(),
            seen: 0,
        }
    }
}

impl<const N: usize> Fit<N> {
    /// Number of samples that it fits.
    pub(super) fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Returns the constant and the slopes.
    pub(super) fn coefficients(&self) -> [f64; N] {
        self.coefficients
    }

    /// Learns a sample. Returns whether that led to a new fit. A sample that is no number is ignored.
    pub(super) fn learn(&mut self, point: &[f64; N], value: f64) -> bool {
        if !(value.is_finite() && point.iter().all(|x| x.is_finite())) {
            return false;
        }
        let sample = Sample { point: *point, value };
        match self.samples.get_mut(self.seen % WINDOW) {
            Some(oldest) => *oldest = sample,
            None => self.samples.push(sample),
        }
        self.seen += 1;
        let due = self.seen.is_multiple_of(PACE);
        if due {
            self.fit();
        }
        due
    }

    fn fit(&mut self) {
        let mut weights = vec![1.0; self.samples.len()];
        for _ in 0..ROUNDS {
            self.coefficients = least_squares(&self.samples, &weights);
            let off = |sample: &Sample<N>| (sample.value - dot(&self.coefficients, &sample.point)).abs();
            let off: Vec<f64> = self.samples.iter().map(off).collect();
            let bearable = (HUBER * NORMAL * median(off.clone())).max(f64::MIN_POSITIVE);
            for (weight, off) in weights.iter_mut().zip(off) {
                *weight = (bearable / off.max(f64::MIN_POSITIVE)).min(1.0);
            }
        }
    }
}

/// Returns the median of at least one number.
fn median(mut numbers: Vec<f64>) -> f64 {
    let middle = numbers.len() / 2;
    *numbers.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Returns the best coefficients among those whose slopes are not below 0: the best over all choices of slopes that are
/// 0, of which there are few.
fn least_squares<const N: usize>(samples: &[Sample<N>], weights: &[f64]) -> [f64; N] {
    let mut products = [[0.0; N]; N];
    let mut values = [0.0; N];
    for (Sample { point, value }, weight) in samples.iter().zip(weights) {
        for (row, line) in products.iter_mut().enumerate() {
            for (column, cell) in line.iter_mut().enumerate() {
                *cell += weight * point[row] * point[column];
            }
            values[row] += weight * point[row] * value;
        }
    }
    let mut best = ([0.0; N], 0.0);
    for free in 0..1_u8 << (N - 1) {
        let is_free = |at: usize| at == 0 || free & (1 << (at - 1)) != 0;
        let found = solve(&products, &values, is_free);
        let squares: f64 = (0..N)
            .map(|row| found[row] * (dot(&products[row], &found) - 2.0 * values[row]))
            .sum();
        if found[1..].iter().all(|slope| *slope >= 0.0) && squares < best.1 {
            best = (found, squares);
        }
    }
    best.0
}

/// Solves the normal equations for the coefficients that are free, by elimination; the others are 0.
fn solve<const N: usize>(
    products: &[[f64; N]; N],
    values: &[f64; N],
    is_free: impl Fn(usize) -> bool,
) -> [f64; N] {
    let (mut left, mut right) = (*products, *values);
    for at in 0..N {
        left[at][at] += RIDGE * (1.0 + left[at][at]);
        if !is_free(at) {
            left[at] = std::array::from_fn(|column| if column == at { 1.0 } else { 0.0 });
            right[at] = 0.0;
        }
    }
    // The matrix is positive definite, so no rows need to be exchanged.
    for pivot in 0..N {
        let line = left[pivot];
        for row in pivot + 1..N {
            let share = left[row][pivot] / line[pivot];
            for (cell, above) in left[row].iter_mut().zip(line).skip(pivot) {
                *cell -= share * above;
            }
            right[row] -= share * right[pivot];
        }
    }
    let mut found = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| left[row][column] * found[column]).sum();
        found[row] = (right[row] - known) / left[row][row];
    }
    found
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between 0 and 1, the same in every run.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as f64 / f64::from(1u32 << 31)
        }
    }

    fn taught(samples: usize, noise: &mut Noise, value: impl Fn(f64, &mut Noise) -> f64) -> Fit<2> {
        let mut fit = Fit::default();
        teach(&mut fit, samples, noise, value);
        fit
    }

    fn teach(fit: &mut Fit<2>, samples: usize, noise: &mut Noise, value: impl Fn(f64, &mut Noise) -> f64) {
        for _ in 0..samples {
            let x = 16.0 * noise.next();
            let value = value(x, noise);
            fit.learn(&[1.0, x], value);
        }
    }

    #[track_caller]
    fn check(fit: &Fit<2>, x: f64, expected: f64, tolerance: f64) {
        let predicted = dot(&fit.coefficients(), &[1.0, x]);
        assert!(
            (predicted - expected).abs() <= tolerance * expected,
            "{predicted}, not {expected}"
        );
    }

    #[test]
    fn finds_the_line_under_noise() {
        let fit = taught(300, &mut Noise(1), |x, noise| {
            20.0 + 50.0 * x + 20.0 * (noise.next() - 0.5)
        });
        check(&fit, 8.0, 420.0, 0.03);
        check(&fit, 0.0, 20.0, 0.3);
    }

    #[test]
    fn one_sample_in_ten_that_hung_moves_it_little() {
        let hung = |x: f64, noise: &mut Noise| {
            let value = 20.0 + 50.0 * x + 20.0 * (noise.next() - 0.5);
            if noise.next() < 0.1 {
                value + 30_000.0
            } else {
                value
            }
        };
        check(&taught(128, &mut Noise(2), hung), 8.0, 420.0, 0.05);
    }

    #[test]
    fn follows_a_worker_that_became_four_times_slower() {
        let noise = &mut Noise(3);
        let mut fit = taught(500, noise, |x, _| 20.0 + 50.0 * x);
        teach(&mut fit, WINDOW, noise, |x, _| 80.0 + 200.0 * x);
        check(&fit, 8.0, 1_680.0, 0.01);
    }

    #[test]
    fn a_slope_without_samples_stays_0_and_one_that_falls_counts_as_flat() {
        let mut fit = Fit::<3>::default();
        for at in 0..500 {
            let x = f64::from(at % 7);
            fit.learn(&[1.0, x, 0.0], 100.0 - x);
        }
        let [_, falling, unheard] = fit.coefficients();
        assert_eq!((falling, unheard), (0.0, 0.0));
    }

    #[test]
    fn the_fit_stays_finite_for_any_samples() {
        let mut fit = Fit::<2>::default();
        for value in [f64::NAN, f64::INFINITY, 1e300, 0.0, -1e300, 5.0] {
            for _ in 0..200 {
                fit.learn(&[1.0, value.min(1e9)], value);
                fit.learn(&[1.0, 1.0], 5.0);
            }
        }
        assert!(
            fit.coefficients()
                .iter()
                .all(|coefficient| coefficient.is_finite())
        );
    }
}
