//! Retry budget of a pool, and exponential backoff with jitter.
//!
//! A retry is free if the failed attempt cannot have cost a worker anything (not reached, or connection refused). Any
//! other retry is paid from the pool's budget, which is a share of its requests. If many workers fail, retries add at
//! most that share to the load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

/// Window of the budget.
const WINDOW_MS: u64 = 10_000;

/// Retry settings of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrySpec {
    /// Retries per request, as a share over ten seconds.
    pub share: f64,
    /// Additional retries per second, regardless of the number of requests.
    pub per_second: f64,
    /// First backoff; each further one doubles it.
    pub backoff: Duration,
    /// Maximum backoff.
    pub longest_backoff: Duration,
    /// Statuses after which another worker is tried, for requests that are not split.
    pub statuses: Vec<StatusCode>,
    /// Maximum of workers that may close the connection on one unsplit request; at least 1.
    pub crashes: u32,
}

impl Default for RetrySpec {
    fn default() -> Self {
        Self {
            share: 0.2,
            per_second: 10.0,
            backoff: Duration::from_millis(25),
            longest_backoff: Duration::from_millis(250),
            statuses: vec![
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::INTERNAL_SERVER_ERROR,
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::GATEWAY_TIMEOUT,
            ],
            crashes: 2,
        }
    }
}

/// Retry budget of a pool, kept over reloads.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    since: Instant,
    requests: AtomicU64,
    /// Locked for a few additions only.
    window: Mutex<RetryWindow>,
}

#[derive(Debug, Default)]
struct RetryWindow {
    since_ms: u64,
    /// Requests before the window.
    before: u64,
    /// Requests of an equally long time before the window.
    carried: f64,
    spent: u64,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            requests: AtomicU64::new(0),
            window: Mutex::default(),
        }
    }
}

impl RetryBudget {
    /// Counts a request.
    pub(crate) fn earn(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Pays for a retry. Returns `true` if the budget allows it.
    pub(crate) fn pay(&self, spec: &RetrySpec) -> bool {
        let now_ms = self.since.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        let requests = self.requests.load(Ordering::Relaxed);
        // The data are plain numbers, valid after any panic.
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.pay(spec, now_ms, requests)
    }
}

impl RetryWindow {
    fn pay(&mut self, spec: &RetrySpec, now_ms: u64, requests: u64) -> bool {
        let elapsed = now_ms.saturating_sub(self.since_ms);
        if elapsed >= WINDOW_MS {
            let came = requests.saturating_sub(self.before) as f64;
            *self = Self {
                since_ms: now_ms,
                before: requests,
                carried: came * WINDOW_MS as f64 / elapsed as f64,
                spent: 0,
            };
        }
        let came = requests.saturating_sub(self.before) as f64;
        let seconds = WINDOW_MS as f64 / 1e3;
        let allowed = spec.share * came.max(self.carried) + spec.per_second * seconds;
        let may = (self.spent + 1) as f64 <= allowed;
        self.spent += u64::from(may);
        may
    }
}

/// Returns the backoff before the next attempt, after `tries` failed ones. Jitter derived from `seed` picks a value
/// between half of the backoff and all of it.
pub(crate) fn pause(spec: &RetrySpec, tries: u32, seed: u64) -> Duration {
    let doubled = spec.backoff.saturating_mul(1 << tries.saturating_sub(1).min(16));
    let mixed = (seed ^ u64::from(tries) << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let share = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    doubled.min(spec.longest_backoff).mul_f64(0.5 + 0.5 * share)
}

/// Returns a worker's `Retry-After` in milliseconds, if it is given in seconds.
pub(crate) fn retry_after_ms(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    let has_pause = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (has_pause && seconds > 0).then(|| seconds.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_failures_is_retried_for_a_share_of_the_requests() {
        let spec = RetrySpec {
            share: 0.2,
            per_second: 1.0,
            ..RetrySpec::default()
        };
        let mut window = RetryWindow::default();
        // A thousand requests per second fail repeatedly for a minute.
        let mut retried = 0;
        for request in 0..60_000_u64 {
            for _ in 0..2 {
                retried += u64::from(window.pay(&spec, request, request + 1));
            }
        }
        assert!((11_000..=12_070).contains(&retried), "{retried}");
    }

    #[test]
    fn few_requests_have_the_fixed_part() {
        let spec = RetrySpec {
            share: 0.0,
            per_second: 0.5,
            ..RetrySpec::default()
        };
        let mut window = RetryWindow::default();
        let paid = (0..100).filter(|_| window.pay(&spec, 0, 1)).count();
        assert_eq!(paid, 5);
        assert!(window.pay(&spec, WINDOW_MS, 1));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_differ() {
        let spec = RetrySpec::default();
        let within = |tries, longest_ms: u64| {
            let longest = Duration::from_millis(longest_ms);
            (0..100).all(|seq| (longest / 2..=longest).contains(&pause(&spec, tries, seq)))
        };
        assert!(within(1, 25) && within(2, 50) && within(3, 100) && within(40, 250));
        assert_ne!(pause(&spec, 1, 1), pause(&spec, 1, 2));
    }

    #[test]
    fn a_workers_retry_after_is_in_seconds() {
        #[track_caller]
        fn check(status: u16, value: &'static str, expected: Option<u64>) {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, http::HeaderValue::from_static(value));
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(retry_after_ms(status, &headers), expected, "{status} {value}");
        }
        check(429, "2", Some(2_000));
        check(503, " 7 ", Some(7_000));
        check(500, "2", None);
        check(429, "0", None);
        check(429, "Wed, 21 Oct 2026 07:28:00 GMT", None);
        check(429, "-1", None);
    }
}
