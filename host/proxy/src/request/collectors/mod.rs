//! Collectors over the active snapshot: numbers of the running state, read at each scrape.

mod admission;
mod edge;
mod fleet;
mod states;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use self::admission::AdmissionCollector;
use self::edge::EdgeCollector;
use self::fleet::FleetCollector;
use self::states::StateCollector;
use crate::observe::experiments::encode_trials;
use crate::request::metrics::ProxyMetrics;
use crate::request::snapshot::SnapshotCell;

/// Collector over the experiments of the active snapshot.
#[derive(Debug)]
struct TrialCollector(Arc<SnapshotCell>);

impl Collector for TrialCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.load();
        let trials = snapshot.routes.iter().filter_map(|route| route.policies.trial());
        encode_trials(&mut encoder, trials.map(|trial| &**trial))
    }
}

impl ProxyMetrics {
    /// Registers collectors for the running state: generation, loads, queues, connections.
    pub fn watch(&self, registry: &mut Registry, cell: &Arc<SnapshotCell>) {
        let registry = registry.sub_registry_with_prefix("conductor");
        registry.register_collector(Box::new(FleetCollector::new(Arc::clone(cell))));
        registry.register_collector(Box::new(StateCollector(Arc::clone(cell))));
        registry.register_collector(Box::new(EdgeCollector(Arc::clone(cell))));
        registry.register_collector(Box::new(TrialCollector(Arc::clone(cell))));
        registry.register_collector(Box::new(AdmissionCollector::new(Arc::clone(cell))));
    }
}
