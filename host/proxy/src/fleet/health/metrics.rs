//! Metrics of workers' health, of probes and scrapes, and of retries.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::base::label::{
    EJECTIONS, EjectionCause, PROBES, ProbeResult, RETRIES, RetryKind, SCRAPES, ScrapeResult,
};
use crate::base::metric_labels::WorkerResultLabel;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerCauseLabel {
    worker: String,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolKindLabel {
    pool: String,
    kind: &'static str,
}

/// Metric families of health.
#[derive(Debug, Clone, Default)]
pub(crate) struct HealthFamilies {
    ejections: Family<WorkerCauseLabel, Counter>,
    probes: Family<WorkerResultLabel, Counter>,
    scrapes: Family<WorkerResultLabel, Counter>,
    retries: Family<PoolKindLabel, Counter>,
}

/// Metric handles of one worker.
#[derive(Debug)]
pub(crate) struct HealthMetrics {
    ejections: [Counter; EJECTIONS.len()],
    probes: [Counter; PROBES.len()],
    scrapes: [Counter; SCRAPES.len()],
}

/// Metric handles of one pool.
#[derive(Debug)]
pub(crate) struct RetryMetrics([Counter; RETRIES.len()]);

impl HealthFamilies {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "worker_ejections",
            "Ejections of a worker, by cause",
            self.ejections.clone(),
        );
        registry.register(
            "worker_probes",
            "Health probes of a worker, by result",
            self.probes.clone(),
        );
        registry.register(
            "worker_scrapes",
            "Scrapes of the load of a worker's engine, by result",
            self.scrapes.clone(),
        );
        registry.register(
            "retries",
            "Retries of requests: free, paid from the retry budget, and over budget (not made)",
            self.retries.clone(),
        );
    }

    pub(crate) fn worker(&self, name: &str) -> HealthMetrics {
        let result = |result| WorkerResultLabel {
            worker: name.to_owned(),
            result,
        };
        let cause = |cause| WorkerCauseLabel {
            worker: name.to_owned(),
            cause,
        };
        HealthMetrics {
            ejections: EJECTIONS.map(|(_, label)| self.ejections.get_or_create_owned(&cause(label))),
            probes: PROBES.map(|(_, label)| self.probes.get_or_create_owned(&result(label))),
            scrapes: SCRAPES.map(|(_, label)| self.scrapes.get_or_create_owned(&result(label))),
        }
    }

    pub(crate) fn pool(&self, name: &str) -> RetryMetrics {
        RetryMetrics(RETRIES.map(|(_, kind)| {
            let pool = name.to_owned();
            self.retries.get_or_create_owned(&PoolKindLabel { pool, kind })
        }))
    }

    /// Removes the series of a removed worker.
    pub(crate) fn forget_worker(&self, name: &str) {
        for (_, cause) in EJECTIONS {
            let worker = name.to_owned();
            self.ejections.remove(&WorkerCauseLabel { worker, cause });
        }
        for (family, results) in [
            (&self.probes, PROBES.map(|(_, label)| label).to_vec()),
            (&self.scrapes, SCRAPES.map(|(_, label)| label).to_vec()),
        ] {
            for result in results {
                let worker = name.to_owned();
                family.remove(&WorkerResultLabel { worker, result });
            }
        }
    }
}

impl HealthMetrics {
    pub(crate) fn ejected(&self, cause: EjectionCause) {
        self.ejections[cause as usize].inc();
    }

    pub(super) fn probed(&self, result: ProbeResult) {
        self.probes[result as usize].inc();
    }

    pub(super) fn scraped(&self, result: ScrapeResult) {
        self.scrapes[result as usize].inc();
    }
}

impl RetryMetrics {
    pub(crate) fn count(&self, kind: RetryKind) {
        self.0[kind as usize].inc();
    }
}
