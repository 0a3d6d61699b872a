//! Logarithmic histogram of times, with quantiles of 2 % accuracy.

/// Lower bound of the first bucket in seconds.
const LOWEST: f64 = 0.000_1;
/// Buckets per factor e. Each is 4 % wide, so the error of a quantile is at most 2 %.
const PER_E: f64 = 25.0;
/// Number of buckets: up to about 1,400 s. Longer times count as that.
const BUCKETS: usize = 412;

/// Histogram of times in seconds.
#[derive(Debug, Clone)]
pub(crate) struct TimeHistogram {
    counts: Box<[u32; BUCKETS]>,
    count: u64,
    sum: f64,
}

/// Summary of times in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimesReport {
    /// Number of times.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            sum: 0.0,
        }
    }
}

impl TimeHistogram {
    /// Adds a time.
    pub(crate) fn add(&mut self, seconds: f64) {
        // The cast truncates, and saturates at 0 for negative values.
        let bucket = ((seconds / LOWEST).ln() * PER_E) as usize;
        let count = &mut self.counts[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
        self.count += 1;
        self.sum += seconds;
    }

    /// Returns the summary, or `None` without times.
    pub(crate) fn report(&self) -> Option<TimesReport> {
        (self.count > 0).then(|| TimesReport {
            count: self.count,
            mean: self.sum / self.count as f64,
            p50: self.quantile(0.5),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
        })
    }

    fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        let bucket = found.unwrap_or(BUCKETS - 1) as f64;
        LOWEST * ((bucket + 0.5) / PER_E).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_2_percent_off() {
        let mut times = TimeHistogram::default();
        assert_eq!(times.report(), None);
        for ms in 1..=1000 {
            times.add(f64::from(ms) / 1e3);
        }
        let report = times.report().unwrap();
        for (found, expected) in [
            (report.p50, 0.5),
            (report.p95, 0.95),
            (report.p99, 0.99),
            (report.mean, 0.5005),
        ] {
            assert!(
                (found / expected - 1.0).abs() < 0.021,
                "{found} is not {expected}"
            );
        }
    }

    #[test]
    fn times_out_of_range_count_in_the_outermost_buckets() {
        let mut times = TimeHistogram::default();
        for seconds in [0.0, 0.000_001, 1e9] {
            times.add(seconds);
        }
        let report = times.report().unwrap();
        assert!(report.p50 < 0.000_2 && report.p99 > 1_000.0, "{report:?}");
    }
}
