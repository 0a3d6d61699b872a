//! Pipelines of a configuration, and the components that they name.

use conductor_config::{Config, PipelineConfig};

/// Returns the pipeline of that name. `None` if the policy is no pipeline.
#[must_use]
pub fn pipeline_of<'c>(config: &'c Config, name: &str) -> Option<&'c PipelineConfig> {
    let mut policies = config.policies.iter();
    policies.find(|policy| policy.name == name)?.pipeline()
}

/// Returns the components that a policy decides with, by name: itself, or the scorers of a pipeline.
pub fn components<'c>(config: &'c Config, name: &'c str) -> impl Iterator<Item = &'c str> {
    let pipeline = pipeline_of(config, name);
    let itself = pipeline.is_none().then_some(name);
    let scorers = pipeline.into_iter().flat_map(|pipeline| pipeline.spec.scorers());
    itself.into_iter().chain(scorers)
}

/// Returns the scorers of a pipeline as text for people. `None` if the policy is no pipeline.
#[must_use]
pub fn scorers_of(config: &Config, name: &str) -> Option<String> {
    let scorers: Vec<String> = pipeline_of(config, name)?
        .spec
        .scorers()
        .map(|scorer| format!("`{scorer}`"))
        .collect();
    Some(match &*scorers {
        [] => "of which it has none".to_owned(),
        scorers => scorers.join(" or "),
    })
}
