//! The state of a pipeline, for `/admin/policies`: what it is made of, and which of its scorers is asked.

use conductor_config::PipelineConfig;
use routing::{Pick, TermSource};
use serde::Serialize;

use crate::policy_library::PolicyReport;

/// What a pipeline is made of.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PipelineReport {
    /// In order.
    pub filters: Vec<FilterReport>,
    /// In order.
    pub scorers: Vec<ScorerReport>,
    /// As the configuration names it.
    pub pick: &'static str,
    /// Of `softmax`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// A filter.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct FilterReport {
    /// As its metric names it.
    pub keeps: String,
    /// Whether a request that it leaves nobody for is rejected.
    pub strict: bool,
}

/// A scorer.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ScorerReport {
    /// The policy, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The column, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature: Option<String>,
    /// Below 0 less is better.
    pub weight: f64,
    /// Id of the policy's version that is asked now; `nobody` while all of them rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<String>,
}

impl PipelineReport {
    pub(crate) fn of(PipelineConfig { spec, .. }: &PipelineConfig) -> Self {
        let filters = spec.filters.iter().map(|filter| FilterReport {
            keeps: filter.to_string(),
            strict: filter.strict,
        });
        let scorers = spec.terms.iter().map(|term| {
            let (policy, feature) = match &term.source {
                TermSource::Policy(name) => (Some(name.to_string()), None),
                TermSource::Feature(name) => (None, Some(name.to_string())),
            };
            ScorerReport {
                policy,
                feature,
                weight: term.weight,
                asks: None,
            }
        });
        Self {
            filters: filters.collect(),
            scorers: scorers.collect(),
            pick: spec.pick.as_str(),
            temperature: match spec.pick {
                Pick::Softmax { temperature } => Some(temperature),
                Pick::Max | Pick::PowerOfTwo => None,
            },
        }
    }
}

/// Says of each scorer of a pipeline which version of it is asked, as its own report has it.
pub(crate) fn fill_in(policies: &mut [PolicyReport]) {
    let decides = |policy: &PolicyReport| Some((policy.name.clone(), policy.decides.clone()?));
    let known: Vec<(String, String)> = policies.iter().filter_map(decides).collect();
    let scorers = policies.iter_mut().filter_map(|policy| policy.pipeline.as_mut());
    for scorer in scorers.flat_map(|pipeline| &mut pipeline.scorers) {
        let version = known
            .iter()
            .find(|(name, _)| Some(name) == scorer.policy.as_ref());
        scorer.asks = version.map(|(_, id)| match id.as_str() {
            "fallback" => "nobody".to_owned(),
            id => id.to_owned(),
        });
    }
}
