//! Medians of a few tries, and percentiles of many latencies in bounded memory.

use std::time::Duration;

/// Buckets for each power of two: a percentile is off by at most 1/128.
const PER_OCTAVE_BITS: u32 = 7;
const PER_OCTAVE: u64 = 1 << PER_OCTAVE_BITS;
/// Values of 2^40 ns (18 minutes) and above share the last bucket.
const OCTAVES: u32 = 40;
const BUCKETS: usize = ((OCTAVES - PER_OCTAVE_BITS + 1) as usize) << PER_OCTAVE_BITS;

/// A log-linear histogram of durations, in nanoseconds. Recording never allocates.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
    }

    /// Returns the number of counted durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Returns the smallest bucket's lower edge at or below which a share of `quantile` (0 to 1) of the durations lie,
    /// in microseconds; `None` when nothing was counted.
    #[must_use]
    pub fn micros(&self, quantile: f64) -> Option<f64> {
        let rank = ((quantile * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(lower_edge(found) as f64 / 1_000.0)
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PER_OCTAVE {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - PER_OCTAVE_BITS;
    let index = u64::from(shift) * PER_OCTAVE + (nanos >> shift);
    (index as usize).min(BUCKETS - 1)
}

fn lower_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    (bucket - shift * PER_OCTAVE) << shift
}

/// Returns the median; of an even number of values the mean of the middle two. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_lower_edge_and_is_narrower_than_a_128th() {
        let around_powers = (0..63).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1]);
        for value in around_powers.filter(|value| *value < 1 << 40) {
            let edge = lower_edge(bucket(value));
            assert!(
                edge <= value && value - edge <= value / 128,
                "{value} falls into the bucket of {edge}"
            );
            assert_eq!(bucket(edge), bucket(value));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_follow_the_ranks() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.micros(0.5), None);
        (1..=100).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        for (quantile, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let micros = histogram.micros(quantile).unwrap();
            assert!(
                (micros - expected).abs() <= expected / 128.0,
                "{quantile}: {micros} instead of {expected}"
            );
        }
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 9.0, 2.0]), Some(3.0));
    }
}
