//! Curves of a run, with a bounded number of points.

use simulator::{Outcome, RequestOutcome, Sample};

/// Most points of a distribution.
const MOST_OF_A_DISTRIBUTION: usize = 200;
/// Most points of a series over time.
const MOST_OF_A_SERIES: usize = 150;
/// Share of a run that one point covers: over less, shares of few requests fluctuate.
const WINDOWS: usize = 20;
/// Seconds that a time to first token is taken to be at least: 0 has no place on a logarithmic axis.
const LEAST_TTFT_S: f64 = 0.001;

/// Points (x, y). A y of NaN is a gap.
pub(in super::super) type Points = Vec<[f64; 2]>;

/// The curves of one run. Those over time have seconds of the run for x.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in super::super) struct Curves {
    /// Seconds to the first token, and the share of all requests that had theirs by then.
    pub(super) ttft: Points,
    /// Share of the blocks of the prompts computed lately that were cached.
    pub(super) hits: Points,
    /// Prompt tokens that wait at the worker where most do, over the mean of those that compute prompts, lately.
    pub(super) imbalance: Points,
    /// Requests whose prompts are not computed yet, or wait for a decode worker.
    pub(super) waiting: Points,
    /// Requests refused so far.
    pub(super) refused: Points,
}

impl Curves {
    pub(in super::super) fn of(outcome: &Outcome) -> Self {
        let workers = outcome.workers.iter().filter(|worker| worker.computes).count();
        let size = outcome.samples.len().div_ceil(MOST_OF_A_SERIES).max(1);
        let mut curves = Self {
            ttft: distribution(&outcome.courses),
            ..Self::default()
        };
        let samples = &outcome.samples;
        let window = samples.len().div_ceil(WINDOWS).max(size);
        // The last sample is the last point's.
        let first = samples.len().saturating_sub(1) % size;
        for end in (first..samples.len()).step_by(size) {
            let last = &samples[end];
            let lately = &samples[(end + 1).saturating_sub(window)..=end];
            let before = end
                .checked_sub(window)
                .map_or(Sample::default(), |before| samples[before]);
            let at_s = last.at_us as f64 / 1e6;
            let sum = |samples: &[Sample], of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64;
            let blocks = (last.blocks - before.blocks) as f64;
            let cached = (last.cached_blocks - before.cached_blocks) as f64;
            let queued = sum(lately, |sample| sample.queued_tokens);
            let most = sum(lately, |sample| sample.most_queued_tokens);
            let since_the_point_before = &samples[(end + 1).saturating_sub(size)..=end];
            let waiting = sum(since_the_point_before, |sample| {
                (sample.held + sample.in_prefill + sample.handed_over) as u64
            });
            // 0 / 0 is the gap that it should be.
            curves.hits.push([at_s, cached / blocks]);
            curves.imbalance.push([at_s, most * workers as f64 / queued]);
            curves
                .waiting
                .push([at_s, waiting / since_the_point_before.len() as f64]);
            curves.refused.push([at_s, last.rejected as f64]);
        }
        curves
    }
}

fn distribution(courses: &[RequestOutcome]) -> Points {
    let mut ttft: Vec<u64> = courses.iter().filter_map(RequestOutcome::ttft_us).collect();
    ttft.sort_unstable();
    let points = ttft.len().min(MOST_OF_A_DISTRIBUTION);
    let point = |number: usize| {
        // Rounded up as in the table, so that a quantile's point reaches its share.
        let rank = (number * ttft.len()).div_ceil(points);
        let seconds = ttft[rank - 1] as f64 / 1e6;
        [seconds.max(LEAST_TTFT_S), rank as f64 / courses.len() as f64]
    };
    (1..=points).map(point).collect()
}

/// Returns the y of the last point whose x is at most this; NaN before the first.
pub(super) fn at(points: &[[f64; 2]], x: f64) -> f64 {
    let after = points.partition_point(|point| point[0] <= x);
    after.checked_sub(1).map_or(f64::NAN, |last| points[last][1])
}

/// Returns the least x whose y is at least this; NaN where none is.
pub(super) fn reaches(points: &[[f64; 2]], y: f64) -> f64 {
    let first = points.iter().find(|point| point[1] >= y);
    first.map_or(f64::NAN, |point| point[0])
}

#[cfg(test)]
mod tests {
    use simulator::{Quantiles, WorkerUse};

    use super::*;

    fn outcome(requests: u64, samples: usize) -> Outcome {
        let course = |number| RequestOutcome {
            first_token_us: (number % 10 != 0).then_some(number * 1_000),
            ..RequestOutcome::arrived(0)
        };
        let sample = |number: usize| Sample {
            at_us: number as u64 * 1_000_000,
            blocks: 10 * number as u64,
            cached_blocks: 4 * number as u64,
            held: 3,
            queued_tokens: 800,
            most_queued_tokens: 600,
            rejected: number,
            ..Sample::default()
        };
        let worker = WorkerUse {
            computes: true,
            ..WorkerUse::default()
        };
        Outcome {
            courses: (0..requests).map(course).collect(),
            workers: vec![worker; 4],
            samples: (1..=samples).map(sample).collect(),
            ..Outcome::default()
        }
    }

    #[test]
    fn however_long_a_run_was_its_curves_have_few_points() {
        let curves = Curves::of(&outcome(30_000, 2_000));
        assert_eq!(curves.ttft.len(), 200);
        assert!(curves.hits.len() <= 150 && curves.hits.len() > 75);
        assert_eq!(curves.hits.last().unwrap(), &[2_000.0, 0.4]);
        assert_eq!(curves.imbalance[3][1], 3.0);
        assert_eq!(curves.waiting[3][1], 3.0);
        assert_eq!(curves.refused.last().unwrap()[1], 2_000.0);
    }

    #[test]
    fn requests_without_a_first_token_keep_the_curve_below_one() {
        let ttft = Curves::of(&outcome(1_000, 1)).ttft;
        assert_eq!(ttft.last().unwrap(), &[0.999, 0.9]);
        assert!((reaches(&ttft, 0.45) - 0.5).abs() < 0.01);
        assert!(reaches(&ttft, 0.95).is_nan());
        assert!(at(&ttft, 0.0001).is_nan());
    }

    #[test]
    fn the_quantiles_of_the_curve_are_those_of_the_table() {
        let course = |number: u64| RequestOutcome {
            first_token_us: Some(number * 1_000_000),
            ..RequestOutcome::arrived(0)
        };
        let courses: Vec<_> = (1..=1_001).map(course).collect();
        let quantiles = Quantiles::of((1..=1_001).map(f64::from));
        let curve = distribution(&courses);
        assert_eq!(reaches(&curve, 0.99), quantiles.p99);
        assert_eq!(reaches(&curve, 0.5), quantiles.p50);
        assert_eq!(curve.last().unwrap(), &[1_001.0, 1.0]);
    }

    #[test]
    fn of_a_run_without_requests_there_is_nothing_to_plot() {
        assert_eq!(Curves::of(&Outcome::default()), Curves::default());
    }

    #[test]
    fn a_window_without_computed_blocks_is_a_gap_in_the_hit_ratio() {
        let mut still = outcome(1, 2);
        still.samples[1].blocks = still.samples[0].blocks;
        still.samples[1].cached_blocks = still.samples[0].cached_blocks;
        assert!(Curves::of(&still).hits[1][1].is_nan());
    }
}
