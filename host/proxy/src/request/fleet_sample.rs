//! Fleet sample: the numbers of pools and workers at one moment, for rates and charts.
//!
//! It reads the counters that the metrics have anyway. Requests pay nothing for it.

use std::sync::Arc;

use prometheus_client::metrics::histogram::Histogram;
use routing::{EngineReport, Worker};

use crate::base::label::{OUTCOMES, Outcome};
use crate::dispatch::metrics::PoolMetrics;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::split::PdPool;
use crate::fleet::pool::Member;
use crate::request::fleet_report::{Health, HealthReason, is_served};
use crate::request::snapshot::Snapshot;

/// Numbers of a pool.
#[derive(Debug)]
pub struct PoolSample {
    /// Name of the pool.
    pub name: Box<str>,
    /// Totals since the start of the process.
    pub totals: PoolTotals,
    /// Requests in the pool's queue.
    pub waiting: usize,
    /// Set if a decode worker can answer a request without a prefill worker.
    pub decodes_alone: bool,
    /// Workers in the order of the configuration.
    pub workers: Vec<WorkerSample>,
}

impl PoolSample {
    /// Returns `true` if workers in service can answer a request.
    #[must_use]
    pub fn is_served(&self) -> bool {
        let workers = self.workers.iter();
        is_served(
            workers.map(|sample| (&*sample.worker, sample.health)),
            self.decodes_alone,
        )
    }
}

/// Totals of a pool since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolTotals {
    /// Requests that ended.
    pub requests: u64,
    /// Of those, failures of the router or its workers. Requests that were refused or left are none.
    pub errors: u64,
    /// Tokens of prompts with known tokens.
    pub prompt_tokens: u64,
    /// Of those, tokens that the chosen worker held according to the index.
    pub matched_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Times to the first token.
    pub first_token: TimeTotal,
    /// Times of a token after the first, of complete streams.
    pub per_token: TimeTotal,
}

/// Number and sum of measured times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TimeTotal {
    /// Number of measurements.
    pub count: u64,
    /// Their sum in seconds.
    pub seconds: f64,
}

impl TimeTotal {
    fn add(&mut self, times: &Histogram) {
        self.count += times.count();
        self.seconds += times.sum();
    }
}

/// Numbers of a worker of a pool.
#[derive(Debug)]
pub struct WorkerSample {
    /// Spec and load of the worker.
    pub worker: Arc<Worker>,
    /// Health of the worker.
    pub health: Health,
    /// Reason of its health, if something counts against the worker.
    pub reason: Option<String>,
    /// Attempts of requests since the worker came.
    pub attempts: u64,
    /// Tokens of its answers since then.
    pub output_tokens: u64,
    /// Requests under way.
    pub in_flight: u32,
    /// Of those, requests past their first token.
    pub decoding: u32,
    /// The engine's last report of its own load.
    pub engine: Option<EngineReport>,
    /// Moving mean of the time to the first token in seconds.
    pub ttft_s: Option<f64>,
    /// Moving mean of the time between tokens in seconds.
    pub tpot_s: Option<f64>,
}

impl Outcome {
    /// Returns `true` for a failure of the router or its workers.
    fn is_failure(self) -> bool {
        matches!(
            self,
            Self::UpstreamError
                | Self::ShutDown
                | Self::IdleTimeout
                | Self::FirstByteTimeout
                | Self::Unreachable
                | Self::QueueTimeout
                | Self::RequestTimeout
        )
    }
}

impl Snapshot {
    /// Samples its pools.
    #[must_use]
    pub fn sample(&self) -> Vec<PoolSample> {
        self.pools.iter().map(|pool| sample(pool)).collect()
    }
}

fn sample(pool: &PoolState) -> PoolSample {
    let members = pool.workers.members.iter();
    PoolSample {
        name: pool.workers.name.clone(),
        totals: totals(&pool.metrics),
        waiting: pool.queue.controller.len(),
        decodes_alone: pool.pd.as_ref().is_some_and(PdPool::decodes_alone),
        workers: members.map(worker).collect(),
    }
}

fn totals(metrics: &PoolMetrics) -> PoolTotals {
    let ended = |of: fn(Outcome) -> bool| {
        let outcomes = OUTCOMES.into_iter().filter(|(outcome, _)| of(*outcome));
        outcomes.map(|(outcome, _)| metrics.count(outcome)).sum()
    };
    let mut totals = PoolTotals {
        requests: ended(|_| true),
        errors: ended(Outcome::is_failure),
        prompt_tokens: metrics.prompt_tokens.prompt.get(),
        matched_tokens: metrics.prompt_tokens.matched.get(),
        ..PoolTotals::default()
    };
    metrics.models.each(|model| {
        totals.output_tokens += model.output_tokens.get();
        totals.first_token.add(model.first_token.histogram());
        totals.per_token.add(model.per_token.histogram());
    });
    totals
}

fn worker(member: &Member) -> WorkerSample {
    let now_ms = member.link.now_ms();
    let state = member.link.health.report(now_ms);
    let health = Health::of(member, state.status);
    let load = member.worker.load();
    let (read, own) = (load.read(), load.own());
    let seconds = |ms: f64| (ms.is_finite() && ms > 0.0).then_some(ms / 1e3);
    WorkerSample {
        worker: Arc::clone(&member.worker),
        health,
        reason: HealthReason::of(member, health, state, now_ms).text,
        attempts: member.link.metrics.attempts.get(),
        output_tokens: member.link.metrics.output_tokens.get(),
        in_flight: own.requests,
        decoding: own.decoding,
        engine: load.engine().map(|(report, _)| report),
        ttft_s: seconds(read.ttft_ewma_ms),
        tpot_s: seconds(load.tbt_ewma_ms()),
    }
}
