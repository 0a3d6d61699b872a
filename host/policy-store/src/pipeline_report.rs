//! Report on a pipeline for `/admin/policies`: its parts, and the deciding version of each scorer.

use conductor_config::PipelineConfig;
use routing::{Pick, TermSource};
use serde::Serialize;

use crate::library::PolicyReport;

/// Parts of a pipeline.
#[derive(Debug, Clone, Serialize)]
pub struct PipelineReport {
    /// Filters, in order.
    pub filters: Vec<FilterReport>,
    /// Scorers, in order.
    pub scorers: Vec<ScorerReport>,
    /// Way of choosing, as the configuration names it.
    pub pick: &'static str,
    /// Temperature of `softmax`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// Filter of a pipeline.
#[derive(Debug, Clone, Serialize)]
pub struct FilterReport {
    /// Name, as in its metric.
    pub keeps: String,
    /// True if a request without a remaining worker is rejected.
    pub strict: bool,
}

/// Scorer of a pipeline.
#[derive(Debug, Clone, Serialize)]
pub struct ScorerReport {
    /// Policy that scores, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Column that is the score, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature: Option<String>,
    /// Weight; below 0, less is better.
    pub weight: f64,
    /// Id of the policy's version that scores now; `none` while all circuits are open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Former name of `version`, for one release; `nobody` in place of `none`.
    #[serde(rename = "asks", skip_serializing_if = "Option::is_none")]
    pub former_version: Option<String>,
}

impl PipelineReport {
    /// Returns the report on a configured pipeline.
    #[must_use]
    pub fn of(PipelineConfig { spec, .. }: &PipelineConfig) -> Self {
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
                version: None,
                former_version: None,
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

/// Adds the deciding version of each scorer, from the report of its policy.
pub fn add_deciding_versions(policies: &mut [PolicyReport]) {
    let decides = |policy: &PolicyReport| Some((policy.name.clone(), policy.decides.clone()?));
    let known: Vec<(String, String)> = policies.iter().filter_map(decides).collect();
    let scorers = policies.iter_mut().filter_map(|policy| policy.pipeline.as_mut());
    for scorer in scorers.flat_map(|pipeline| &mut pipeline.scorers) {
        let version = known
            .iter()
            .find(|(name, _)| Some(name) == scorer.policy.as_ref());
        let named = |none: &str| {
            version.map(|(_, id)| match id.as_str() {
                "fallback" => none.to_owned(),
                id => id.to_owned(),
            })
        };
        (scorer.version, scorer.former_version) = (named("none"), named("nobody"));
    }
}
