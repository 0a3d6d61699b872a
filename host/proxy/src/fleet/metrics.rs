//! Metrics of workers: attempts, failures, health, and queries of model lists.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::base::label::FAILURES;
use crate::fleet::catalog::CatalogFamilies;
use crate::fleet::health::{HealthFamilies, RetryMetrics};
use crate::fleet::worker::WorkerMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    worker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerKindLabel {
    worker: String,
    kind: &'static str,
}

/// Metrics of the fleet. A clone is another handle to the same numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetMetrics {
    attempts: Family<WorkerLabel, Counter>,
    failures: Family<WorkerKindLabel, Counter>,
    output_tokens: Family<WorkerLabel, Counter>,
    health: HealthFamilies,
    catalog: CatalogFamilies,
}

impl FleetMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.health.register(registry);
        self.catalog.register(registry);
        registry.register(
            "worker_attempts",
            "Attempts of requests, by worker",
            self.attempts.clone(),
        );
        registry.register(
            "worker_failures",
            "Failed attempts, and answers with a status of 500 or more",
            self.failures.clone(),
        );
        registry.register(
            "worker_output_tokens",
            "Tokens of a worker's answers, counted as they pass: from their usage, else one for each event of a stream",
            self.output_tokens.clone(),
        );
    }

    /// Returns the metrics of one worker.
    pub(crate) fn worker(&self, name: &str) -> WorkerMetrics {
        let worker = WorkerLabel {
            worker: name.to_owned(),
        };
        let with = |kind| WorkerKindLabel {
            worker: name.to_owned(),
            kind,
        };
        WorkerMetrics {
            attempts: self.attempts.get_or_create_owned(&worker),
            output_tokens: self.output_tokens.get_or_create_owned(&worker),
            failures: FAILURES.map(|(_, label)| self.failures.get_or_create_owned(&with(label))),
            health: self.health.worker(name),
            catalog: self.catalog.worker(name),
        }
    }

    /// Returns the counters of a pool's retries.
    pub(crate) fn retries(&self, pool: &str) -> RetryMetrics {
        self.health.pool(pool)
    }

    /// Removes the metrics of a worker that is gone for good.
    pub(crate) fn forget_worker(&self, name: &str) {
        self.health.forget_worker(name);
        self.catalog.forget_worker(name);
        let worker = WorkerLabel {
            worker: name.to_owned(),
        };
        self.attempts.remove(&worker);
        self.output_tokens.remove(&worker);
        for (_, kind) in FAILURES {
            self.failures.remove(&WorkerKindLabel {
                worker: name.to_owned(),
                kind,
            });
        }
    }
}
