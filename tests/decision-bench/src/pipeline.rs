//! A pipeline of two scorers and a column over the same fleet: what the host's part of it costs beside its components.

use std::borrow::Cow;
use std::sync::Arc;

use conductor_policy_sdk::Plan;
use policy_runtime::{EngineLimits, PolicyEngine, PolicySettings};
use routing::{
    CandidateFeature, DecisionInput, DecisionQueries, FeaturePlan, Pick, Pipeline, PipelineSpec, Policy,
    PolicyDescription, PolicyFault, PolicyVersions, RequestFacts, Term, TermSource, Unobserved, Verdict,
    WorkerId,
};

use crate::{fleet, prebuilt};

const ADAPTER: &str = "sql-lora";

/// A pipeline with its input.
#[derive(Debug)]
pub struct PipelineCrossing {
    pipeline: Pipeline,
    ids: Vec<WorkerId>,
    numbers: Vec<f64>,
}

impl PipelineCrossing {
    /// Returns twice `tier-weight`, `lora-affinity`, and less `load.requests`, over so many candidates.
    ///
    /// # Panics
    /// When a component is missing or is not taken.
    #[must_use]
    pub fn new(candidates: usize) -> Self {
        let policy = |name: &str, weight| Term {
            source: TermSource::Policy(name.into()),
            weight,
        };
        let requests = Term {
            source: TermSource::Feature("load.requests".into()),
            weight: -1.0,
        };
        let spec = PipelineSpec {
            filters: Vec::new(),
            terms: vec![policy("tier-weight", 2.0), policy("lora-affinity", 1.0), requests],
            pick: Pick::Max,
        };
        let engine = PolicyEngine::new(EngineLimits::default()).expect("this machine runs WebAssembly");
        let scorer = |name: &str| {
            let params = match name {
                "lora-affinity" => format!("{{\"adapters\":\"{ADAPTER}\"}}"),
                _ => "{}".to_owned(),
            };
            let settings = PolicySettings {
                params_json: params,
                ..PolicySettings::default()
            };
            let policy = engine.load(name, &prebuilt(name), &settings, Arc::default());
            Some(PolicyVersions::only(Arc::new(policy.expect("it is a policy"))))
        };
        let pipeline = Pipeline::new("mixed", spec, scorer, Arc::new(Unobserved));
        let pipeline = pipeline.expect("every column is in the catalogue");
        Self {
            numbers: fleet(candidates).numbers(&plan(pipeline.plan())),
            ids: (0..).map(WorkerId).take(candidates).collect(),
            pipeline,
        }
    }

    /// Calls the pipeline as the router does.
    ///
    /// # Errors
    /// None: a pipeline never fails.
    pub fn call(&self, seq: u64) -> Result<Verdict, PolicyFault> {
        let request = RequestFacts {
            session: Some(seq),
            now_us: seq,
            ..RequestFacts::of_seq(seq)
        };
        self.pipeline.decide(&DecisionInput {
            request: &request,
            ids: &self.ids,
            numbers: &self.numbers,
            queries: &(Arc::new(ForAdapter) as Arc<dyn DecisionQueries>),
        })
    }
}

/// Converts the plan to the SDK's type.
fn plan(plan: &FeaturePlan) -> Plan {
    let mut same = Plan::default();
    for feature in plan.request() {
        same.request(feature.name());
    }
    for feature in plan.candidate() {
        match (feature, feature.name()) {
            (CandidateFeature::Label(key), _) => drop(same.label(key)),
            (_, Cow::Borrowed(name)) => drop(same.column(name)),
            (_, Cow::Owned(_)) => {}
        }
    }
    same
}

/// A request for the adapter.
struct ForAdapter;

impl DecisionQueries for ForAdapter {
    fn model(&self) -> &str {
        ADAPTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scorer_takes_part() {
        let crossing = PipelineCrossing::new(64);
        let Ok(Verdict::Route(choice)) = crossing.call(1) else {
            panic!("no route")
        };
        // The best prefix counts twice, a home of the adapter once, and the least load once.
        assert!(choice.score > 0.5 && choice.score <= 1.0, "{}", choice.score);
        assert_eq!(crossing.pipeline.scorers().count(), 2);
    }
}
