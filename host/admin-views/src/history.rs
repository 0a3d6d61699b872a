//! History of a fleet: the rates of the last ten minutes, one sample a second.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proxy::{PoolSample, WorkerSample};
use serde::Serialize;

use crate::rates::{FleetRates, PoolRates, rounded, worker_key};

/// Samples that are kept.
pub const HISTORY_SAMPLES: usize = 600;
/// Workers of a sample that are kept. The page shows those of the newest sample.
pub const HISTORY_WORKERS: usize = 256;

/// Ring of samples. A clone shares them, so that a page is made without the lock of the ring.
#[derive(Debug, Clone, Default)]
pub struct History(VecDeque<Arc<HistorySample>>);

/// Numbers of one second.
#[derive(Debug)]
struct HistorySample {
    at: f64,
    pools: Vec<(Box<str>, PoolRates)>,
    workers: Vec<(Box<str>, WorkerPoint)>,
}

#[derive(Debug, Clone, Copy)]
struct WorkerPoint {
    in_flight: u32,
    tokens_per_s: Option<f64>,
    kv_usage: Option<f64>,
}

/// The page: one list for each number, all as long as `at`. `null` where there was no such pool or number.
#[derive(Debug, Serialize)]
pub struct HistoryPage<'a> {
    step_s: u64,
    at: Vec<f64>,
    pools: BTreeMap<&'a str, PoolSeries>,
    workers: BTreeMap<&'a str, WorkerSeries>,
}

/// Numbers of a pool over time.
#[derive(Debug, Default, Serialize)]
struct PoolSeries {
    requests_per_s: Vec<Option<f64>>,
    tokens_per_s: Vec<Option<f64>>,
    errors_per_s: Vec<Option<f64>>,
    ttft_s: Vec<Option<f64>>,
    tpot_s: Vec<Option<f64>>,
    queue_waiting: Vec<Option<usize>>,
    in_flight: Vec<Option<u32>>,
    hit_ratio: Vec<Option<f64>>,
}

/// Numbers of a worker over time.
#[derive(Debug, Default, Serialize)]
struct WorkerSeries {
    in_flight: Vec<Option<u32>>,
    tokens_per_s: Vec<Option<f64>>,
    kv_usage: Vec<Option<f64>>,
}

impl History {
    /// Adds a sample of the time `at`, in seconds since 1970, and drops the oldest one of a full ring.
    pub fn add(&mut self, at: f64, pools: &[PoolSample], rates: &FleetRates) {
        if self.0.len() == HISTORY_SAMPLES {
            self.0.pop_front();
        }
        let workers = pools
            .iter()
            .flat_map(|pool| pool.workers.iter().map(move |worker| (pool, worker)));
        let workers = workers.take(HISTORY_WORKERS);
        self.0.push_back(Arc::new(HistorySample {
            at,
            pools: pools
                .iter()
                .map(|pool| (pool.name.clone(), rates.pool(&pool.name)))
                .collect(),
            workers: workers
                .map(|(pool, worker)| {
                    let key = worker_key(pool, worker);
                    let point = WorkerPoint::of(worker, rates.worker(&key).tokens_per_s);
                    (key.into(), point)
                })
                .collect(),
        }));
    }

    /// Returns the time of the newest sample.
    #[must_use]
    pub fn newest(&self) -> Option<f64> {
        self.0.back().map(|sample| sample.at)
    }

    /// Returns the page. It has the pools and workers of the newest sample.
    #[must_use]
    pub fn page(&self) -> HistoryPage<'_> {
        let samples = || self.0.iter();
        let newest = self.0.back();
        let pools = newest.iter().flat_map(|sample| names(&sample.pools));
        let workers = newest.iter().flat_map(|sample| names(&sample.workers));
        let mut page = HistoryPage {
            step_s: 1,
            at: samples().map(|sample| sample.at).collect(),
            pools: pools.map(|name| (name, PoolSeries::default())).collect(),
            workers: workers.map(|name| (name, WorkerSeries::default())).collect(),
        };
        for sample in samples() {
            let pools: BTreeMap<&str, &PoolRates> = by_name(&sample.pools);
            for (name, series) in &mut page.pools {
                series.push(pools.get(name).copied());
            }
            let workers: BTreeMap<&str, &WorkerPoint> = by_name(&sample.workers);
            for (name, series) in &mut page.workers {
                series.push(workers.get(name).copied());
            }
        }
        page
    }
}

fn names<T>(named: &[(Box<str>, T)]) -> impl Iterator<Item = &str> {
    named.iter().map(|(name, _)| &**name)
}

fn by_name<T>(named: &[(Box<str>, T)]) -> BTreeMap<&str, &T> {
    named.iter().map(|(name, value)| (&**name, value)).collect()
}

impl WorkerPoint {
    fn of(worker: &WorkerSample, tokens_per_s: Option<f64>) -> Self {
        let usage = worker.engine.map(|load| load.kv_usage);
        Self {
            in_flight: worker.in_flight,
            tokens_per_s,
            kv_usage: usage.filter(|usage| usage.is_finite()).map(rounded),
        }
    }
}

impl PoolSeries {
    fn push(&mut self, rates: Option<&PoolRates>) {
        self.requests_per_s.push(rates.map(|of| of.requests_per_s));
        self.tokens_per_s.push(rates.and_then(|of| of.tokens_per_s));
        self.errors_per_s.push(rates.map(|of| of.errors_per_s));
        self.ttft_s.push(rates.and_then(|of| of.ttft_s));
        self.tpot_s.push(rates.and_then(|of| of.tpot_s));
        self.queue_waiting.push(rates.map(|of| of.queue_waiting));
        self.in_flight.push(rates.map(|of| of.in_flight));
        self.hit_ratio.push(rates.and_then(|of| of.hit_ratio));
    }
}

impl WorkerSeries {
    fn push(&mut self, point: Option<&WorkerPoint>) {
        self.in_flight.push(point.map(|of| of.in_flight));
        self.tokens_per_s.push(point.and_then(|of| of.tokens_per_s));
        self.kv_usage.push(point.and_then(|of| of.kv_usage));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{pool, worker};

    fn page(history: &History) -> Value {
        serde_json::to_value(history.page()).unwrap()
    }

    #[test]
    fn series_are_as_long_as_the_times_and_null_where_a_pool_was_not_there() {
        let mut history = History::default();
        let rates = FleetRates::default();
        history.add(1.0, &[pool("a", vec![worker("w0")])], &rates);
        let mut busy = worker("w0");
        busy.in_flight = 4;
        history.add(2.0, &[pool("a", vec![busy]), pool("b", vec![])], &rates);
        let page = page(&history);
        assert_eq!(page["at"], json!([1.0, 2.0]));
        assert_eq!(page["pools"]["b"]["requests_per_s"], json!([null, 0.0]));
        assert_eq!(page["workers"]["a/w0"]["in_flight"], json!([0, 4]));
        assert_eq!(page["workers"]["a/w0"]["kv_usage"], json!([null, null]));
    }

    #[test]
    fn the_ring_keeps_the_newest_samples_of_a_bounded_number_of_workers() {
        let mut history = History::default();
        let workers = (0..HISTORY_WORKERS + 10).map(|number| worker(&format!("w{number}")));
        let pools = [pool("a", workers.collect())];
        for second in 0..HISTORY_SAMPLES + 5 {
            history.add(second as f64, &pools, &FleetRates::default());
        }
        let page = page(&history);
        assert_eq!(page["at"].as_array().unwrap().len(), HISTORY_SAMPLES);
        assert_eq!(page["at"][0], 5.0);
        assert_eq!(page["workers"].as_object().unwrap().len(), HISTORY_WORKERS);
    }
}
