//! Metrics, decision log and exporter of traces of a router, and the collectors of its registry.

use std::sync::Arc;

use decision_log::Recorder;
use prometheus_client::registry::Registry;
use proxy::ProxyMetrics;
use trace_export::TraceExporter;

use crate::metrics::ControlMetrics;
use crate::reload::Reloader;
use policy_store::{CompileCollector, MemoryCollector, PolicyCollector, PolicyMemory};

/// Metrics, decision log, and exporter of traces.
pub(super) struct Meters {
    pub(super) proxy: ProxyMetrics,
    pub(super) control: ControlMetrics,
    pub(super) recorder: Arc<Recorder>,
    pub(super) exporter: Arc<TraceExporter>,
}

impl Meters {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            proxy: ProxyMetrics::new(registry),
            control: ControlMetrics::register(registry),
            recorder: Recorder::new(registry),
            exporter: TraceExporter::new(registry),
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
