//! Metrics of the request path: one group for each folder that owns some.
//!
//! Handles are resolved when a snapshot is built, so that a request only adds to atomics. Values of the running state
//! (loads, queues, connections) are read when Prometheus scrapes. Reading them costs a request nothing.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use routing::PipelineSpec;

use crate::base::buckets::BucketBounds;
use crate::dispatch::metrics::{DispatchMetrics, PoolMetrics, SharedPoolMetrics};
use crate::fleet::metrics::FleetMetrics;
use crate::limits::metrics::LimitMetrics;
use crate::observe::edge_metrics::EdgeMetrics;
use crate::observe::metrics::ObserveMetrics;
use crate::observe::pipeline_parts::PipelineWatch;
use crate::observe::policies::Decisions;
use crate::request::realtime::TunnelMetrics;
use crate::request::responses::ResponseMetrics;
use crate::tokens::TokensMetrics;

/// Metrics of the request path. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub struct ProxyMetrics {
    pub(crate) dispatch: DispatchMetrics,
    pub(crate) tokens: TokensMetrics,
    pub(crate) limits: LimitMetrics,
    pub(crate) observe: ObserveMetrics,
    pub(crate) fleet: FleetMetrics,
    pub(crate) edge: EdgeMetrics,
    pub(crate) tunnels: TunnelMetrics,
    pub(crate) responses: ResponseMetrics,
}

impl ProxyMetrics {
    /// Registers every metric, with names that begin with `conductor_`.
    pub fn new(registry: &mut Registry) -> Self {
        Self::with_buckets(registry, &BucketBounds::default())
    }

    /// Registers every metric, with these bounds of histograms.
    pub fn with_buckets(registry: &mut Registry, bounds: &BucketBounds) -> Self {
        let metrics = Self {
            dispatch: DispatchMetrics::new(bounds),
            tokens: TokensMetrics::new(bounds),
            limits: LimitMetrics::new(bounds),
            observe: ObserveMetrics::new(bounds),
            fleet: FleetMetrics::default(),
            edge: EdgeMetrics::default(),
            tunnels: TunnelMetrics::default(),
            responses: ResponseMetrics::default(),
        };
        let registry = registry.sub_registry_with_prefix("conductor");
        metrics.dispatch.register(registry);
        metrics.tokens.register(registry);
        metrics.limits.register(registry);
        metrics.observe.register(registry);
        metrics.fleet.register(registry);
        metrics.edge.register(registry);
        metrics.tunnels.register(registry);
        metrics.responses.register(registry);
        metrics
    }

    /// Returns the metrics of one pool.
    pub(crate) fn pool(&self, name: &str) -> PoolMetrics {
        let shared = SharedPoolMetrics {
            retries: self.fleet.retries(name),
            prompts: self.tokens.pool(name),
            models: self.dispatch.models.table(name),
        };
        self.dispatch.pools.pool(name, shared)
    }

    /// Returns the counters of a policy's answers.
    #[must_use]
    pub fn decisions_of(&self, policy: &str) -> Decisions {
        self.observe.policies.decisions(policy)
    }

    /// Returns an observer of the parts of a pipeline; `scorer` returns the name under which a policy among them is
    /// kept.
    #[must_use]
    pub fn watch_pipeline(
        &self,
        name: &str,
        spec: &PipelineSpec,
        scorer: impl Fn(&str) -> String,
    ) -> Arc<PipelineWatch> {
        let policies = self.observe.policies.clone();
        Arc::new(self.observe.pipelines.watch(policies, name, spec, scorer))
    }
}
