//! What is told of admission: who came in how, who waits, and how full the budgets are.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::request::snapshot::SnapshotCell;

/// How a request came in, or why it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    AtOnce,
    /// It had to wait for the budget; how that ended is counted as well, unless it was let in.
    AfterWaiting,
    QueueFull,
    TimedOut,
    Shed,
    TooSlow,
}

/// Every kind in the order of its discriminant, with its label.
const RESULTS: [(Admitted, &str); 6] = [
    (Admitted::AtOnce, "at-once"),
    (Admitted::AfterWaiting, "held"),
    (Admitted::QueueFull, "queue-full"),
    (Admitted::TimedOut, "timed-out"),
    (Admitted::Shed, "shed"),
    (Admitted::TooSlow, "rejected-early"),
];

/// The kinds of classes, in the order of [`routing::ClassCounts`].
pub(crate) const CLASSES: [&str; 3] = ["sheddable", "standard", "preferred"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolResultLabel {
    pool: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

/// The metrics of all pools.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdmissionFamilies {
    results: Family<PoolResultLabel, Counter>,
    comments: Family<PoolLabel, Counter>,
}

/// Handles of one pool.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    results: [Counter; RESULTS.len()],
    /// Seconds from a ticket's taking to its end.
    pub(super) waited: Histogram,
}

impl AdmissionFamilies {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "admission",
            "Requests by how they came in, or why they did not, in pools with budgets or held requests; those that were held are \
             counted again where they were not let in",
            self.results.clone(),
        );
        registry.register(
            "keep_alive_comments",
            "Comments sent to clients whose streams had nothing to say",
            self.comments.clone(),
        );
    }

    pub(crate) fn pool(&self, pool: &str, waited: Histogram) -> AdmissionMetrics {
        let of = |result| PoolResultLabel {
            pool: pool.to_owned(),
            result,
        };
        AdmissionMetrics {
            results: RESULTS.map(|(_, label)| self.results.get_or_create_owned(&of(label))),
            waited,
        }
    }

    /// The comments of one pool.
    pub(crate) fn comments(&self, pool: &str) -> Counter {
        let pool = pool.to_owned();
        self.comments.get_or_create_owned(&PoolLabel { pool })
    }
}

impl AdmissionMetrics {
    pub(super) fn count(&self, result: Admitted) {
        self.results[result as usize].inc();
    }
}

/// Queues and budgets, read when Prometheus asks.
#[derive(Debug)]
pub(crate) struct AdmissionCollector {
    cell: Arc<SnapshotCell>,
}

impl AdmissionCollector {
    pub(crate) fn new(cell: Arc<SnapshotCell>) -> Self {
        Self { cell }
    }
}

impl Collector for AdmissionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.cell.load();
        let mut waiting = encoder.encode_descriptor(
            "queue_waiting",
            "Requests that wait in a pool's queue, by class: sheddable (priority below 0), standard (0), preferred (above)",
            None,
            MetricType::Gauge,
        )?;
        for pool in &snapshot.pools {
            for (class, count) in CLASSES.iter().zip(pool.queue.counts()) {
                let labels = [("pool", &*pool.name), ("class", *class)];
                ConstGauge::new(count as f64).encode(waiting.encode_family(&labels)?)?;
            }
        }
        let budgets = || snapshot.pools.iter().filter(|pool| pool.admission.is_some());
        let mut used = encoder.encode_descriptor(
            "budget_used",
            "What a pool has under way of its budgets",
            None,
            MetricType::Gauge,
        )?;
        for pool in budgets() {
            let (of, _) = pool.queue.budget();
            for (budget, amount) in [("requests", of.requests), ("tokens", of.tokens)] {
                let labels = [("pool", &*pool.name), ("budget", budget)];
                ConstGauge::new(amount as f64).encode(used.encode_family(&labels)?)?;
            }
        }
        let mut limit = encoder.encode_descriptor(
            "budget_limit",
            "What it may have under way; absent where there is no limit",
            None,
            MetricType::Gauge,
        )?;
        for pool in budgets() {
            let (_, of) = pool.queue.budget();
            for (budget, amount) in [("requests", of.requests), ("tokens", of.tokens)] {
                let labels = [("pool", &*pool.name), ("budget", budget)];
                if let Some(amount) = amount {
                    ConstGauge::new(amount as f64).encode(limit.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_stands_at_its_discriminant() {
        let mut results = RESULTS.iter().enumerate();
        assert!(results.all(|(at, (result, _))| *result as usize == at));
    }
}
