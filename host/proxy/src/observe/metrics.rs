//! Metrics of observers: policies, pipelines, events and experiments.

use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::observe::events::EventFamilies;
use crate::observe::experiments::ArmFamilies;
use crate::observe::pipeline_parts::PipelineFamilies;
use crate::observe::policies::PolicyFamilies;

/// Metrics of observers. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct ObserveMetrics {
    pub(crate) policies: PolicyFamilies,
    pub(crate) pipelines: PipelineFamilies,
    pub(crate) arms: ArmFamilies,
    pub(crate) events: EventFamilies,
}

impl ObserveMetrics {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            policies: PolicyFamilies::new(bounds),
            pipelines: PipelineFamilies::default(),
            arms: ArmFamilies::new(bounds),
            events: EventFamilies::default(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.policies.register(registry);
        self.pipelines.register(registry);
        self.arms.register(registry);
        self.events.register(registry);
    }
}
