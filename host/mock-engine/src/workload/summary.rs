//! Summary of a run.

use std::time::Duration;

use crate::workload::event_stream::Usage;

/// Figures over all requests of a run, in real time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Requests sent.
    pub requests: u64,
    /// Failed requests among those.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
    /// Time from the first request to the last answer.
    pub elapsed: Duration,
    /// Prompt tokens in the answers' usage; the next two likewise.
    pub prompt_tokens: u64,
    /// Cached prompt tokens.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Time to first token of every successful request, shortest first.
    ttfts: Vec<Duration>,
}

impl Summary {
    /// Counts one answer.
    pub(crate) fn succeeded(&mut self, ttft: Duration, usage: Usage) {
        self.requests += 1;
        self.prompt_tokens += usage.prompt;
        self.cached_tokens += usage.cached;
        self.generated_tokens += usage.generated;
        let place = self.ttfts.partition_point(|other| *other <= ttft);
        self.ttfts.insert(place, ttft);
    }

    /// Counts one failure.
    pub(crate) fn failed(&mut self, error: String) {
        self.requests += 1;
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// Returns the mean time to first token; `None` if no request succeeded.
    #[must_use]
    pub fn mean_ttft(&self) -> Option<Duration> {
        let total: Duration = self.ttfts.iter().sum();
        let requests = u32::try_from(self.ttfts.len()).unwrap_or(u32::MAX);
        total.checked_div(requests)
    }

    /// Returns the time to first token that this share (0 to 1) of the requests did not exceed, by nearest rank;
    /// `None` if no request succeeded.
    #[must_use]
    pub fn ttft(&self, share: f64) -> Option<Duration> {
        let rank = (share.clamp(0.0, 1.0) * self.ttfts.len() as f64).ceil() as usize;
        self.ttfts.get(rank.saturating_sub(1)).copied()
    }

    /// Returns the median time to first token.
    #[must_use]
    pub fn p50_ttft(&self) -> Option<Duration> {
        self.ttft(0.5)
    }

    /// Returns the 99th percentile of the time to first token.
    #[must_use]
    pub fn p99_ttft(&self) -> Option<Duration> {
        self.ttft(0.99)
    }

    /// Returns the cached share of the prompt tokens, 0 to 1.
    #[must_use]
    pub fn cached_share(&self) -> f64 {
        if self.prompt_tokens == 0 {
            return 0.0;
        }
        self.cached_tokens as f64 / self.prompt_tokens as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut summary = Summary::default();
        assert_eq!((summary.mean_ttft(), summary.p99_ttft()), (None, None));
        for millis in (1..=100).rev() {
            summary.succeeded(Duration::from_millis(millis), Usage::default());
        }
        let millis = Duration::from_millis;
        assert_eq!(summary.p50_ttft(), Some(millis(50)));
        assert_eq!(summary.p99_ttft(), Some(millis(99)));
        assert_eq!(summary.ttft(1.0), Some(millis(100)));
        assert_eq!(summary.mean_ttft(), Some(Duration::from_micros(50_500)));
    }

    #[test]
    fn failures_count_as_requests_and_the_first_is_kept() {
        let mut summary = Summary::default();
        summary.failed("a".to_owned());
        summary.failed("b".to_owned());
        assert_eq!((summary.requests, summary.errors), (2, 2));
        assert_eq!(summary.first_error.as_deref(), Some("a"));
    }
}
