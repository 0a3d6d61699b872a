//! Quantiles of many times in little room.

/// Seconds at the lower end of the first bucket.
const SHORTEST: f64 = 0.000_1;
/// Buckets a factor of e: each is 4% wide, so that a quantile is at most 2% off.
const PER_E: f64 = 25.0;
/// Up to some 1,400 s; whatever is longer counts as that.
const BUCKETS: usize = 412;

/// Times in seconds, counted by buckets of equal ratio.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    counts: Box<[u32; BUCKETS]>,
    count: u64,
    sum: f64,
}

/// What is told of some times, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimesReport {
    /// How many.
    pub count: u64,
    /// Their arithmetic mean.
    pub mean: f64,
    /// Half of them are shorter.
    pub p50: f64,
    /// 95 in 100 are shorter.
    pub p95: f64,
    /// 99 in 100 are shorter.
    pub p99: f64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            sum: 0.0,
        }
    }
}

impl Times {
    pub(crate) fn add(&mut self, seconds: f64) {
        // A float becomes an integer by cutting off, and what is below 0 becomes 0.
        let bucket = ((seconds / SHORTEST).ln() * PER_E) as usize;
        let count = &mut self.counts[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(1);
        self.count += 1;
        self.sum += seconds;
    }

    /// None while there are none. Quantiles are at most 2% off.
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
        SHORTEST * ((bucket + 0.5) / PER_E).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_2_percent_off() {
        let mut times = Times::default();
        assert_eq!(times.report(), None);
        for ms in 1..=1000 {
            times.add(f64::from(ms) / 1e3);
        }
        let told = times.report().unwrap();
        for (found, expected) in [
            (told.p50, 0.5),
            (told.p95, 0.95),
            (told.p99, 0.99),
            (told.mean, 0.5005),
        ] {
            assert!(
                (found / expected - 1.0).abs() < 0.021,
                "{found} is not {expected}"
            );
        }
    }

    #[test]
    fn what_is_out_of_bounds_counts_at_the_bound() {
        let mut times = Times::default();
        for seconds in [0.0, 0.000_001, 1e9] {
            times.add(seconds);
        }
        let told = times.report().unwrap();
        assert!(told.p50 < 0.000_2 && told.p99 > 1_000.0, "{told:?}");
    }
}
