//! Policies that a configuration names and that are unavailable, with the reasons.

use conductor_config::{Code, Config, Diagnostic, PolicyConfig};
use observability::error_chain;

use super::shadow_name;
use crate::library::{Outcome, PolicyProblem, Prepared, PreparedPolicy};
use crate::param_diagnostics::param_diagnostics;

/// Returns a diagnostic for each policy of the configuration that is unavailable. A policy that was active before with
/// the same settings stays available if its new bytes are bad.
#[must_use]
pub fn unavailable_policies(config: &Config, prepared: &Prepared) -> Vec<Diagnostic> {
    let named = config.policies.iter().filter_map(|policy| {
        let mut prepared = prepared.policies.iter();
        let found = prepared.find(|prepared| prepared.wanted.name == policy.name)?;
        (!found.accepted).then_some((policy, found))
    });
    let diagnostics = named.flat_map(|(policy, found)| unavailable(config, policy, found));
    diagnostics.collect()
}

/// Returns the policies that the configuration waits for: policies that are being compiled, without a version that has
/// the wanted settings.
#[must_use]
pub fn awaited_policies(config: &Config, prepared: &Prepared) -> Vec<String> {
    let is_named = |name: &str| {
        let mut policies = config.policies.iter();
        policies.any(|policy| policy.name == name || shadow_name(&policy.name) == name)
    };
    let awaited = prepared.loading().filter(|policy| !policy.accepted);
    let awaited = awaited.map(|policy| policy.wanted.name.clone());
    awaited.filter(|name| is_named(name)).collect()
}

fn unavailable(config: &Config, policy: &PolicyConfig, prepared: &PreparedPolicy) -> Vec<Diagnostic> {
    let (place, problem) = match &prepared.outcome {
        // The reload waits for compilation before.
        Outcome::Active | Outcome::HeldBack | Outcome::Fresh(_) | Outcome::Loading => return vec![],
        Outcome::Unsettled => (&policy.source_at, "its file is still being written".to_owned()),
        Outcome::Failed(problem) => {
            if let Some(faults) = problem.param_faults() {
                return param_diagnostics(policy, faults);
            }
            if problem.is_in_pipeline() {
                return no_scorer(config, policy, problem);
            }
            let place = match &policy.sha256_at {
                _ if problem.is_in_settings() => policy.settings_at(),
                Some(pin) if problem.is_in_pin() => pin,
                _ => &policy.source_at,
            };
            (place, error_chain(&**problem))
        }
    };
    let message = format!("policy `{}`: {problem}", policy.name);
    let help = "correct the component or its settings; both are checked again when a file changes";
    vec![Diagnostic::new(
        Code::PolicyUnavailable,
        place,
        message,
        Some(help.to_owned()),
    )]
}

/// Returns a diagnostic for each pipeline that has the policy as a scorer, although it is none.
fn no_scorer(config: &Config, policy: &PolicyConfig, problem: &PolicyProblem) -> Vec<Diagnostic> {
    let pipelines = config.policies.iter().filter_map(PolicyConfig::pipeline);
    let named = pipelines.flat_map(|pipeline| pipeline.spec.scorers().zip(&pipeline.scorers_at));
    let places = named.filter(|(scorer, _)| *scorer == policy.name);
    let message = format!("policy `{}`: {}", policy.name, error_chain(problem));
    let help = "name a scorer, such as `tier-weight`; or weigh a column: { feature = \"load.requests\", weight = -1 }";
    let unfit = |at| {
        Diagnostic::new(
            Code::PolicyUnavailable,
            at,
            message.clone(),
            Some(help.to_owned()),
        )
    };
    places.map(|(_, at)| unfit(at)).collect()
}
