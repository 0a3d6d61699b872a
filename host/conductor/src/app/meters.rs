//! Metrics, decision log and exporter of traces of a router, and the collectors of its registry.

use std::sync::Arc;

use conductor_config::MetricsConfig;
use decision_log::Recorder;
use live_updates::ChangeLog;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use proxy::{BucketBounds, ProxyMetrics};
use trace_export::TraceExporter;
use worker_sources::WorkerSources;

use crate::metrics::ControlMetrics;
use crate::reload::Reloader;
use policy_store::{CompileCollector, MemoryCollector, PolicyCollector, PolicyMemory};

/// Metrics, decision log, and exporter of traces.
pub(super) struct Meters {
    pub(super) proxy: ProxyMetrics,
    pub(super) control: ControlMetrics,
    pub(super) recorder: Arc<Recorder>,
    /// Delays of the runtime.
    pub(super) delays: Histogram,
    pub(super) exporter: Arc<TraceExporter>,
    pub(super) changes: ChangeLog,
    /// Sources of workers.
    pub(super) sources: Arc<WorkerSources>,
}

impl Meters {
    pub(super) fn register(registry: &mut Registry, config: &MetricsConfig) -> Self {
        let replaced = config.buckets.iter();
        let bounds = BucketBounds::replacing(replaced.map(|(name, bounds)| (*name, &**bounds)));
        Self {
            proxy: ProxyMetrics::with_buckets(registry, &bounds),
            control: ControlMetrics::register(registry),
            recorder: Recorder::new(registry),
            delays: process_resources::register(registry, bounds.histogram("runtime_delay_seconds")),
            exporter: TraceExporter::new(registry),
            changes: ChangeLog::register(registry),
            sources: WorkerSources::new(registry),
        }
    }

    /// Registers the metrics of the fleet, the policies, their compilation, and policy memory.
    pub(super) fn watch(&self, registry: &mut Registry, reloader: &Reloader, memory: &Arc<PolicyMemory>) {
        let (status, engine) = (reloader.status.clone(), reloader.library.engine().clone());
        self.proxy.watch(registry, &reloader.live.cell);
        PolicyCollector::register(move || status.policies().policies, registry);
        CompileCollector::register(engine, registry);
        MemoryCollector::register(memory, registry);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use conductor_config::HISTOGRAMS;
    use proxy::BucketBounds;

    #[test]
    fn every_histogram_can_be_configured() {
        let known: BTreeSet<&str> = HISTOGRAMS.into_iter().collect();
        assert_eq!(known, BucketBounds::names().collect());
    }
}
