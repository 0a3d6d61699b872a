//! Rates of pools and workers: differences of totals between two samples of the fleet.

use std::collections::HashMap;
use std::time::Duration;

use proxy::{PoolSample, PoolTotals, TimeTotal, WorkerSample};
use serde::Serialize;

/// Rates and levels of a pool. `null` is unknown, or nothing to measure in the interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PoolRates {
    /// Requests that ended.
    pub requests_per_s: f64,
    /// Tokens of answers.
    pub tokens_per_s: Option<f64>,
    /// Requests that failed.
    pub errors_per_s: f64,
    /// Mean time to the first token.
    pub ttft_s: Option<f64>,
    /// Mean time of a token after the first.
    pub tpot_s: Option<f64>,
    /// Requests in the queue.
    pub queue_waiting: usize,
    /// Requests at workers.
    pub in_flight: u32,
    /// Share of prompt tokens that the chosen workers held, by the index.
    pub hit_ratio: Option<f64>,
}

/// Rates of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct WorkerRates {
    /// Attempts of requests.
    pub requests_per_s: f64,
    /// Tokens of answers.
    pub tokens_per_s: Option<f64>,
}

/// Rates of a fleet over one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetRates {
    pools: HashMap<Box<str>, PoolRates>,
    workers: HashMap<String, WorkerRates>,
}

impl FleetRates {
    /// Returns the rates of a pool. Before its second sample they are 0.
    #[must_use]
    pub fn pool(&self, name: &str) -> PoolRates {
        self.pools.get(name).copied().unwrap_or_default()
    }

    /// Returns the rates of a worker by its [`worker_key`].
    #[must_use]
    pub fn worker(&self, key: &str) -> WorkerRates {
        self.workers.get(key).copied().unwrap_or_default()
    }
}

/// Returns the name of a worker among those of all pools: `POOL/NAME`.
#[must_use]
pub fn worker_key(pool: &PoolSample, worker: &WorkerSample) -> String {
    format!("{}/{}", pool.name, worker.worker.spec().name)
}

/// Meter that keeps the totals of the last sample.
#[derive(Debug, Default)]
pub struct RateMeter {
    at: Duration,
    pools: HashMap<Box<str>, PoolTotals>,
    workers: HashMap<String, WorkerTotals>,
}

/// Totals of a worker.
#[derive(Debug, Clone, Copy)]
struct WorkerTotals {
    attempts: u64,
    output_tokens: u64,
}

impl RateMeter {
    /// Returns the rates since the last sample. `at` is the time of this one on a monotonic clock.
    pub fn measure(&mut self, at: Duration, pools: &[PoolSample]) -> FleetRates {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        let mut rates = FleetRates::default();
        let mut next = Self {
            at,
            ..Self::default()
        };
        for pool in pools {
            let last = self.pools.get(&pool.name);
            let of_pool = pool_rates(pool, last, seconds);
            rates.pools.insert(pool.name.clone(), of_pool);
            next.pools.insert(pool.name.clone(), pool.totals);
            for worker in &pool.workers {
                let key = worker_key(pool, worker);
                let (last, now) = (self.workers.get(&key), WorkerTotals::of(worker));
                let rate = |of: fn(&WorkerTotals) -> u64| per_second(of(&now), last.map(of), seconds);
                let of_worker = WorkerRates {
                    requests_per_s: rate(|of| of.attempts),
                    tokens_per_s: Some(rate(|of| of.output_tokens)),
                };
                next.workers.insert(key.clone(), now);
                rates.workers.insert(key, of_worker);
            }
        }
        *self = next;
        rates
    }
}

impl WorkerTotals {
    fn of(worker: &WorkerSample) -> Self {
        Self {
            attempts: worker.attempts,
            output_tokens: worker.output_tokens,
        }
    }
}

fn pool_rates(pool: &PoolSample, last: Option<&PoolTotals>, seconds: f64) -> PoolRates {
    let now = &pool.totals;
    let rate = |of: fn(&PoolTotals) -> u64| per_second(of(now), last.map(of), seconds);
    let since = |of: fn(&PoolTotals) -> u64| last.map_or(0, |last| of(now).saturating_sub(of(last)));
    let prompt = since(|of| of.prompt_tokens);
    let mean = |of: fn(&PoolTotals) -> TimeTotal| mean_time(of(now), of(last?));
    PoolRates {
        requests_per_s: rate(|of| of.requests),
        tokens_per_s: Some(rate(|of| of.output_tokens)),
        errors_per_s: rate(|of| of.errors),
        ttft_s: mean(|of| of.first_token),
        // Long streams are not counted before their end.
        tpot_s: mean(|of| of.per_token).or_else(|| time_per_token(&pool.workers)),
        queue_waiting: pool.waiting,
        in_flight: pool.workers.iter().map(|worker| worker.in_flight).sum(),
        hit_ratio: (prompt > 0).then(|| rounded(since(|of| of.matched_tokens) as f64 / prompt as f64)),
    }
}

/// Returns the mean of the times between two samples. `None` if there are none.
fn mean_time(now: TimeTotal, last: TimeTotal) -> Option<f64> {
    let count = now.count.saturating_sub(last.count);
    let time = (now.seconds - last.seconds).max(0.0);
    (count > 0).then(|| rounded(time / count as f64))
}

/// Returns the mean over the workers' streams.
fn time_per_token(workers: &[WorkerSample]) -> Option<f64> {
    let measured = workers
        .iter()
        .filter_map(|worker| Some((worker.tpot_s?, f64::from(worker.decoding))));
    let (sum, streams) = measured.fold((0.0, 0.0), |(sum, streams), (time, decoding)| {
        (sum + time * decoding, streams + decoding)
    });
    (streams > 0.0).then(|| rounded(sum / streams))
}

fn per_second(now: u64, last: Option<u64>, seconds: f64) -> f64 {
    match last {
        Some(last) if seconds > 0.0 => rounded(now.saturating_sub(last) as f64 / seconds),
        _ => 0.0,
    }
}

/// Rounds to six digits behind the point: microseconds, where a number is a time.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{pool, worker};

    fn totals(requests: u64) -> PoolTotals {
        PoolTotals {
            requests,
            errors: requests / 10,
            prompt_tokens: 100 * requests,
            matched_tokens: 25 * requests,
            output_tokens: 8 * requests,
            first_token: TimeTotal {
                count: requests,
                seconds: 0.5 * requests as f64,
            },
            per_token: TimeTotal {
                count: requests,
                seconds: 0.02 * requests as f64,
            },
        }
    }

    #[test]
    fn rates_are_differences_over_the_interval() {
        let mut meter = RateMeter::default();
        let mut sample = pool("chat", vec![worker("w0")]);
        sample.totals = totals(100);
        sample.workers[0].attempts = 10;
        let first = meter.measure(Duration::from_secs(1), std::slice::from_ref(&sample));
        assert_eq!(
            first.pool("chat").requests_per_s,
            0.0,
            "there was no sample before"
        );

        sample.totals = totals(140);
        sample.workers[0].attempts = 30;
        sample.workers[0].output_tokens = 500;
        sample.workers[0].in_flight = 3;
        sample.waiting = 2;
        let rates = meter.measure(Duration::from_secs(3), std::slice::from_ref(&sample));
        let expected = PoolRates {
            requests_per_s: 20.0,
            tokens_per_s: Some(160.0),
            errors_per_s: 2.0,
            ttft_s: Some(0.5),
            tpot_s: Some(0.02),
            queue_waiting: 2,
            in_flight: 3,
            hit_ratio: Some(0.25),
        };
        assert_eq!(rates.pool("chat"), expected);
        let of_worker = WorkerRates {
            requests_per_s: 10.0,
            tokens_per_s: Some(250.0),
        };
        assert_eq!(rates.worker("chat/w0"), of_worker);
    }

    #[test]
    fn without_requests_in_the_interval_nothing_is_measured() {
        let mut meter = RateMeter::default();
        let mut sample = pool("chat", vec![]);
        sample.totals = totals(100);
        for second in 1..3 {
            let rates = meter.measure(Duration::from_secs(second), std::slice::from_ref(&sample));
            let rates = rates.pool("chat");
            assert_eq!((rates.ttft_s, rates.hit_ratio), (None, None));
            assert_eq!(rates.requests_per_s, 0.0);
        }
    }

    #[test]
    fn the_time_of_a_token_is_weighted_by_the_streams() {
        let mut workers = vec![worker("w0"), worker("w1"), worker("w2")];
        (workers[0].tpot_s, workers[0].decoding) = (Some(0.01), 3);
        (workers[1].tpot_s, workers[1].decoding) = (Some(0.05), 1);
        assert_eq!(time_per_token(&workers), Some(0.02));
        assert_eq!(time_per_token(&workers[2..]), None);
    }
}
