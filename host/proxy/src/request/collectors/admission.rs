//! Collector of the queues and budgets of pools: reads the active snapshot at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::limits::admission::CLASSES;
use crate::request::snapshot::SnapshotCell;

/// Collector over the queues and budgets of the active snapshot.
#[derive(Debug)]
pub(crate) struct AdmissionCollector {
    cell: Arc<SnapshotCell>,
}

impl AdmissionCollector {
    /// Creates the collector.
    pub(crate) fn new(cell: Arc<SnapshotCell>) -> Self {
        Self { cell }
    }
}

impl Collector for AdmissionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.cell.load();
        let mut waiting = encoder.encode_descriptor(
            "queue_waiting",
            "Requests in a pool's queue by class: sheddable (priority below 0), standard (0), preferred (above 0)",
            None,
            MetricType::Gauge,
        )?;
        for pool in &snapshot.pools {
            for (class, count) in CLASSES.iter().zip(pool.queue.controller.counts()) {
                let labels = [("pool", &*pool.workers.name), ("class", *class)];
                ConstGauge::new(count as f64).encode(waiting.encode_family(&labels)?)?;
            }
        }
        let budgets = || {
            snapshot
                .pools
                .iter()
                .filter(|pool| pool.queue.admission.is_some())
        };
        let mut used =
            encoder.encode_descriptor("budget_used", "Usage of a pool's budget", None, MetricType::Gauge)?;
        for pool in budgets() {
            let (of, _) = pool.queue.controller.budget();
            for (budget, amount) in [("requests", of.requests), ("tokens", of.tokens)] {
                let labels = [("pool", &*pool.workers.name), ("budget", budget)];
                ConstGauge::new(amount as f64).encode(used.encode_family(&labels)?)?;
            }
        }
        let mut limit = encoder.encode_descriptor(
            "budget_limit",
            "Limit of a pool's budget; absent without a limit",
            None,
            MetricType::Gauge,
        )?;
        for pool in budgets() {
            let (_, of) = pool.queue.controller.budget();
            for (budget, amount) in [("requests", of.requests), ("tokens", of.tokens)] {
                let labels = [("pool", &*pool.workers.name), ("budget", budget)];
                if let Some(amount) = amount {
                    ConstGauge::new(amount as f64).encode(limit.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
