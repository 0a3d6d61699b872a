//! Runtime state of one worker over all snapshots: connections, health, models, metrics.

use std::time::Duration;

use http::HeaderValue;
use prometheus_client::metrics::counter::Counter;
use routing::Worker;
use tokio::time::Instant;
use worker_client::ConnectionPool;

use crate::base::label::{FAILURES, FailureKind};
use crate::base::throttle::Throttle;
use crate::fleet::catalog::{CatalogMetrics, LearnedModels};
use crate::fleet::health::{AttemptToken, HealthMetrics, HealthStatus, WorkerHealth};
use crate::fleet::tokenizer_circuit::TokenizerCircuit;

/// Metric handles of one worker.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    pub(crate) attempts: Counter,
    pub(crate) failures: [Counter; FAILURES.len()],
    /// Tokens of its answers.
    pub(crate) output_tokens: Counter,
    pub(crate) health: HealthMetrics,
    pub(crate) catalog: CatalogMetrics,
}

impl WorkerMetrics {
    pub(crate) fn failed(&self, kind: FailureKind) {
        self.failures[kind as usize].inc();
    }
}

/// Endpoint of a worker that returns tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenPath {
    /// `/tokenize`, with a body derived from the request's.
    Tokenize,
    /// `/v1/chat/completions/render` and the like, with the request's own body.
    Render,
}

/// Runtime state of one worker.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) upstream: ConnectionPool,
    /// Health of the worker as a whole.
    pub(crate) health: WorkerHealth,
    /// Circuit breaker of its `/tokenize`. A worker may lack that endpoint, or it may be slow while the rest is well.
    tokenize: TokenizerCircuit,
    /// Circuit breaker of its endpoints that render prompts.
    render: TokenizerCircuit,
    /// Models that the worker lists.
    pub(crate) models: LearnedModels,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) failure_log: Throttle,
    /// Value of `x-conductor-worker`.
    pub(crate) label: HeaderValue,
    since: Instant,
}

impl WorkerHandle {
    pub(crate) fn new(worker: &Worker, upstream: ConnectionPool, metrics: WorkerMetrics) -> Self {
        let name = &worker.spec().name;
        Self {
            upstream,
            health: WorkerHealth::default(),
            tokenize: TokenizerCircuit::default(),
            render: TokenizerCircuit::default(),
            models: LearnedModels::default(),
            metrics,
            failure_log: Throttle::default(),
            // A name that cannot be a header value is not shown.
            label: HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("")),
            since: Instant::now(),
        }
    }

    /// Returns the time for which the worker has been known.
    pub(crate) fn age(&self, now: std::time::Instant) -> Duration {
        now.duration_since(self.since.into_std())
    }

    /// Returns the milliseconds on the clock of its health and its tokenizers' circuits.
    pub(crate) fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }

    /// Returns the health status. The clock is read only if something counts against the worker.
    pub(crate) fn status(&self) -> HealthStatus {
        self.health.status(|| self.now_ms())
    }

    /// Returns `true` if the worker is out of service: pending, ejected, busy or unhealthy.
    pub(crate) fn is_out(&self) -> bool {
        self.status().is_out()
    }

    /// Records that the next check follows after this pause.
    pub(crate) fn plan_check(&self, pause: Duration) {
        let pause = pause.as_millis().try_into().unwrap_or(u64::MAX);
        self.health.plan_check(self.now_ms().saturating_add(pause));
    }

    /// Returns `true` if slow start admits the request of that number to the worker.
    pub(crate) fn admits(&self, seq: u64) -> bool {
        self.health.admits(seq, || self.now_ms())
    }

    /// Returns the circuit breaker of an endpoint for tokens.
    pub(crate) fn tokenizer(&self, path: TokenPath) -> &TokenizerCircuit {
        match path {
            TokenPath::Tokenize => &self.tokenize,
            TokenPath::Render => &self.render,
        }
    }

    /// Returns `true` while the worker's endpoint for tokens is to be avoided.
    pub(crate) fn tokenizer_circuit_is_open(&self, path: TokenPath) -> bool {
        let tokenizer = self.tokenizer(path);
        tokenizer.has_failed() && tokenizer.is_open(self.now_ms())
    }

    /// Records that a request is about to be sent.
    pub(crate) fn begin(&self) -> AttemptToken {
        self.health.begin(|| self.now_ms())
    }

    /// Records a good answer to a request.
    pub(crate) fn answered(&self, dispatch: AttemptToken) {
        self.health.answered(dispatch, || self.now_ms());
    }

    /// Records the start of a query to the worker's endpoint for tokens, as [`TokenizerCircuit::begin`].
    pub(crate) fn begin_tokenizing(&self, path: TokenPath) -> AttemptToken {
        let tokenizer = self.tokenizer(path);
        if tokenizer.has_failed() {
            tokenizer.begin(self.now_ms())
        } else {
            AttemptToken::Plain
        }
    }
}
