//! Runtime state of one worker over all snapshots: connections, health, models, metrics.

use std::time::{Duration, Instant};

use http::HeaderValue;
use prometheus_client::metrics::counter::Counter;
use routing::Worker;
use worker_client::ConnectionPool;

use crate::base::label::{FAILURES, FailureKind};
use crate::base::throttle::Throttle;
use crate::fleet::catalog::{CatalogMetrics, LearnedModels};
use crate::fleet::cooldown::Cooldown;
use crate::fleet::health::{AttemptToken, HealthMetrics, HealthStatus, WorkerHealth};

/// Handles of one worker.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    pub(crate) attempts: Counter,
    pub(crate) failures: [Counter; FAILURES.len()],
    pub(crate) health: HealthMetrics,
    pub(crate) catalog: CatalogMetrics,
}

impl WorkerMetrics {
    pub(crate) fn failed(&self, kind: FailureKind) {
        self.failures[kind as usize].inc();
    }
}

/// Runtime state of one worker.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) upstream: ConnectionPool,
    /// Of the worker as a whole.
    pub(crate) health: WorkerHealth,
    /// Of its `/tokenize`, which it may lack, or which may be slow while the rest is well.
    pub(crate) tokenizer: Cooldown,
    /// What it says it serves.
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
            tokenizer: Cooldown::default(),
            models: LearnedModels::default(),
            metrics,
            failure_log: Throttle::default(),
            // A name that is no header value is not shown.
            label: HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("")),
            since: Instant::now(),
        }
    }

    /// How long the worker has been known.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.since)
    }

    /// Milliseconds on the clock of its health and its tokeniser's cooldown.
    pub(crate) fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }

    /// Where it stands; reads the clock only where something speaks against it.
    pub(crate) fn stance(&self) -> HealthStatus {
        self.health.stance(|| self.now_ms())
    }

    /// Whether it is out of service: pending, resting, busy or unhealthy.
    pub(crate) fn is_out(&self) -> bool {
        self.stance().is_out()
    }

    /// Records that it is checked next after this pause.
    pub(crate) fn plan_check(&self, pause: Duration) {
        let pause = pause.as_millis().try_into().unwrap_or(u64::MAX);
        self.health.plan_check(self.now_ms().saturating_add(pause));
    }

    /// Whether the request of that number may be offered it, as far as it has just come back.
    pub(crate) fn admits(&self, seq: u64) -> bool {
        self.health.admits(seq, || self.now_ms())
    }

    /// Whether to keep away from its tokeniser.
    pub(crate) fn tokenizer_is_resting(&self) -> bool {
        self.tokenizer.has_failed() && self.tokenizer.is_resting(self.now_ms())
    }

    /// A request is about to be sent.
    pub(crate) fn begin(&self) -> AttemptToken {
        self.health.begin(|| self.now_ms())
    }

    /// A request was answered well.
    pub(crate) fn answered(&self, dispatch: AttemptToken) {
        self.health.answered(dispatch, || self.now_ms());
    }

    /// Its tokeniser is about to be asked; as [`Cooldown::begin`].
    pub(crate) fn begin_tokenizing(&self) -> AttemptToken {
        if self.tokenizer.has_failed() {
            self.tokenizer.begin(self.now_ms())
        } else {
            AttemptToken::Plain
        }
    }
}
