//! Metrics and logs of the parts of pipelines.

use std::sync::{Arc, OnceLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use routing::{CircuitChange, PipelineObserver, PipelineSpec, PolicyFault, PolicyVersion, RequestFacts};
use tracing::{info, warn};

use crate::base::throttle::Throttle;
use crate::observe::policies::{PolicyFamilies, PolicyMetrics};

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

/// Metric families of all pipelines.
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
            "Decisions of a pipeline without one of its scorers: it failed, or its circuit is open",
            self.left_out.clone(),
        );
        r.register(
            "pipeline_filters_ignored",
            "Decisions of a pipeline that ignored one of its filters because it excluded every candidate",
            self.ignored.clone(),
        );
    }

    /// Creates the observer of one pipeline; `scorer` returns the name under which a policy among its parts is kept.
    pub(crate) fn watch(
        &self,
        policies: PolicyFamilies,
        name: &str,
        spec: &PipelineSpec,
        scorer: impl Fn(&str) -> String,
    ) -> PipelineWatch {
        let scorers = spec.scorers().map(|part| (part.to_owned(), scorer(part)));
        PipelineWatch {
            pipeline: name.into(),
            scorers: scorers.collect(),
            filters: spec.filters.iter().map(ToString::to_string).collect(),
            counters: OnceLock::new(),
            families: self.clone(),
            policies,
        }
    }
}

/// Observer that counts and logs what the parts of one pipeline do.
///
/// The observer is made while a configuration is only planned. Its labels in `/metrics` are added later: by
/// [`PipelineWatch::register`], or with its first count.
#[derive(Debug)]
pub struct PipelineWatch {
    pipeline: Box<str>,
    /// Name in the pipeline, and the name under which the policy is kept.
    scorers: Box<[(String, String)]>,
    filters: Box<[String]>,
    counters: OnceLock<Counters>,
    families: PipelineFamilies,
    policies: PolicyFamilies,
}

#[derive(Debug)]
struct Counters {
    scorers: Box<[ScorerCounters]>,
    ignored: Box<[Counter]>,
}

#[derive(Debug)]
struct ScorerCounters {
    metrics: PolicyMetrics,
    left_out: Counter,
}

impl PipelineWatch {
    /// Shows the parts in `/metrics` from now on: their pipeline is active.
    pub fn register(&self) {
        self.counters();
    }

    fn counters(&self) -> &Counters {
        self.counters.get_or_init(|| {
            let families = &self.families;
            let scorers = self.scorers.iter().map(|(part, kept)| {
                let label = ScorerLabel {
                    policy: self.pipeline.to_string(),
                    scorer: part.clone(),
                };
                ScorerCounters {
                    metrics: self.policies.policy(kept),
                    left_out: families.left_out.get_or_create_owned(&label),
                }
            });
            let ignored = self.filters.iter().map(|filter| {
                let label = FilterLabel {
                    policy: self.pipeline.to_string(),
                    filter: filter.clone(),
                };
                families.ignored.get_or_create_owned(&label)
            });
            Counters {
                scorers: scorers.collect(),
                ignored: ignored.collect(),
            }
        })
    }
}

impl PipelineObserver for PipelineWatch {
    fn failed(
        &self,
        scorer: usize,
        version: &PolicyVersion,
        fault: &PolicyFault,
        change: CircuitChange,
        request: &RequestFacts,
    ) {
        self.counters().scorers[scorer].metrics.failed(fault.kind);
        let (_, policy) = &self.scorers[scorer];
        let (pipeline, version) = (&*self.pipeline, &*version.id);
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
                "the circuit of the scorer's version opened after repeated faults: it is not called"
            );
        }
        if let Some(held_back) = self.families.faults.pass() {
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
        let (_, policy) = &self.scorers[scorer];
        let (pipeline, version) = (&*self.pipeline, &*version.id);
        info!(
            policy,
            version, pipeline, "the circuit of the scorer's version closed: it is called again"
        );
    }

    fn left_out(&self, scorer: usize) {
        self.counters().scorers[scorer].left_out.inc();
    }

    fn ignored(&self, filter: usize) {
        self.counters().ignored[filter].inc();
    }
}
