//! What the parts of pipelines do, which their decisions do not show: counted, and logged where it is a fault.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use routing::{CircuitChange, PipelineObserver, PipelineSpec, PolicyFault, PolicyVersion, RequestFacts};
use tracing::{info, warn};

use crate::metrics::{PolicyMetrics, ProxyMetrics};
use crate::throttle::Throttle;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScorerLabel {
    policy: String,
    scorer: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FilterLabel {
    policy: String,
    filter: String,
}

/// Of all pipelines.
#[derive(Debug, Clone, Default)]
pub(crate) struct PipelineFamilies {
    left_out: Family<ScorerLabel, Counter>,
    ignored: Family<FilterLabel, Counter>,
    faults: Arc<Throttle>,
}

impl PipelineFamilies {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "pipeline_scorers_left_out",
            "Decisions of a pipeline that were made without one of its scorers, since it failed or rests",
            self.left_out.clone(),
        );
        r.register(
            "pipeline_filters_ignored",
            "Decisions of a pipeline that one of its filters was ignored for, since it would have left nobody",
            self.ignored.clone(),
        );
    }
}

/// Watches the parts of one pipeline.
#[derive(Debug)]
struct Watch {
    pipeline: Box<str>,
    scorers: Box<[WatchedScorer]>,
    ignored: Box<[Counter]>,
    faults: Arc<Throttle>,
}

#[derive(Debug)]
struct WatchedScorer {
    name: Box<str>,
    metrics: PolicyMetrics,
    left_out: Counter,
}

impl ProxyMetrics {
    /// Counts and logs what the parts of a pipeline do; `scorer` is under what name a policy among them is kept.
    #[must_use]
    pub fn watch_pipeline(
        &self,
        name: &str,
        spec: &PipelineSpec,
        scorer: impl Fn(&str) -> String,
    ) -> Arc<dyn PipelineObserver> {
        let families = &self.pipelines;
        let policy = || name.to_owned();
        let scorers = spec.scorers().map(|part| {
            let kept = scorer(part);
            let label = ScorerLabel {
                policy: policy(),
                scorer: part.to_owned(),
            };
            WatchedScorer {
                metrics: self.policy(&kept),
                name: kept.into(),
                left_out: families.left_out.get_or_create_owned(&label),
            }
        });
        let ignored = spec.filters.iter().map(|filter| {
            let label = FilterLabel {
                policy: policy(),
                filter: filter.to_string(),
            };
            families.ignored.get_or_create_owned(&label)
        });
        Arc::new(Watch {
            pipeline: name.into(),
            scorers: scorers.collect(),
            ignored: ignored.collect(),
            faults: Arc::clone(&families.faults),
        })
    }
}

impl PipelineObserver for Watch {
    fn failed(
        &self,
        scorer: usize,
        version: &PolicyVersion,
        fault: &PolicyFault,
        change: CircuitChange,
        request: &RequestFacts,
    ) {
        let scorer = &self.scorers[scorer];
        scorer.metrics.failed(fault.kind);
        let (pipeline, policy, version) = (&*self.pipeline, &*scorer.name, &*version.id);
        let error: &(dyn std::error::Error + 'static) = fault;
        let fault = fault.kind.as_str();
        if let CircuitChange::Opened(rest) = change {
            warn!(
                policy,
                version,
                pipeline,
                fault,
                error,
                ?rest,
                "too many faults: this version of the scorer rests"
            );
        }
        if let Some(held_back) = self.faults.pass() {
            warn!(
                policy,
                version,
                pipeline,
                fault,
                error,
                seq = request.seq,
                held_back,
                "the scorer failed; the pipeline decides without it"
            );
        }
    }

    fn recovered(&self, scorer: usize, version: &PolicyVersion) {
        let (policy, version) = (&*self.scorers[scorer].name, &*version.id);
        let pipeline = &*self.pipeline;
        info!(
            policy,
            version, pipeline, "a version of the scorer is asked again"
        );
    }

    fn left_out(&self, scorer: usize) {
        self.scorers[scorer].left_out.inc();
    }

    fn ignored(&self, filter: usize) {
        self.ignored[filter].inc();
    }
}
