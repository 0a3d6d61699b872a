//! Policies that a configuration names and that are unavailable, with the reasons.

use conductor_config::{Code, Config, Diagnostic, Mark, PolicyConfig, PolicySource};
use observability::error_chain;

use super::{components, shadow_name};
use crate::library::{Outcome, PolicyProblem, Prepared, PreparedPolicy};
use crate::param_diagnostics::param_diagnostics;

/// Help for a mistake in the files.
const OF_THE_FILES: &str =
    "correct the component or its settings; both are checked again when a file changes";
/// Help for a failure that may pass by itself.
const OF_THE_MACHINE: &str = "the machine may lack memory or time, and the component may be right: a running router \
                              compiles it again after half a minute or more, and at once by `conductor reload`";

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
    let of_folder = config
        .policies
        .iter()
        .filter(|policy| policy.source == PolicySource::Folder);
    let homeless = of_folder.filter(|_| config.policy_dir.is_none());
    let no_folder = "its file is looked for in `policy-dir`, which is not set";
    let homeless = homeless.map(|policy| diagnostic(config, policy, &policy.source_at, no_folder, None));
    diagnostics.chain(homeless).collect()
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
    let mut help = None;
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
            help = problem.is_transient().then_some(OF_THE_MACHINE);
            (place, error_chain(&**problem))
        }
    };
    vec![diagnostic(config, policy, place, &problem, help)]
}

/// Returns the diagnostic of an unavailable policy. If only a runtime override names the policy, it notes that: the
/// file has no place to point at.
fn diagnostic(
    config: &Config,
    policy: &PolicyConfig,
    place: &Mark,
    problem: &str,
    help: Option<&str>,
) -> Diagnostic {
    let name = &policy.name;
    let (message, help) = match overridden_route(config, policy) {
        Some(route) => (
            format!("policy `{name}`, which a runtime override of route {route} names: {problem}"),
            format!(
                "set `policy-dir` or add [policies.{name}] with its `path`; or end the override first: \
                 conductor policy retract {name} --route {route}"
            ),
        ),
        None => (
            format!("policy `{name}`: {problem}"),
            help.unwrap_or(OF_THE_FILES).to_owned(),
        ),
    };
    Diagnostic::new(Code::PolicyUnavailable, place, message, Some(help))
}

/// Returns the number of the first route that has the policy by a runtime override. `None` if the file names the
/// policy: then it has a position there.
fn overridden_route(config: &Config, policy: &PolicyConfig) -> Option<usize> {
    if policy.source_at != Mark::beginning() {
        return None;
    }
    let names = |name: &str| components(config, name).any(|component| component == policy.name);
    let at = config
        .routes
        .iter()
        .position(|route| route.policies().any(names))?;
    Some(at + 1)
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

#[cfg(test)]
mod tests {
    use conductor_config::Known;
    use local_files::ConfigSource;

    use super::super::wanted_policies;
    use super::*;

    const FILE: &str = r#"
[[pools.main.workers]]
url = "http://a:1"
[[routes]]
match.model = "small"
pool = "main"
[[routes]]
pool = "main"
"#;

    /// Returns a file without `policy-dir`, whose second route has by an override a policy of the folder.
    fn overridden() -> Config {
        let known = Known {
            builtins: &["round-robin"],
            former_builtins: &[],
            default_policy: "round-robin",
            files: &["mine"],
            has_admin_key: false,
        };
        let mut config = Config::parse("conductor.toml", FILE, &known).unwrap().config;
        config.routes[1].policy = "mine".to_owned();
        let mine = PolicyConfig::implied("mine", PolicySource::Folder, Mark::beginning());
        config.policies.push(mine);
        config
    }

    #[test]
    fn without_a_policy_folder_no_file_of_the_working_directory_is_a_policy() {
        let source = ConfigSource::File("conductor.toml".into());
        let wanted = wanted_policies(&overridden(), &source);
        assert!(wanted.iter().all(|policy| policy.name != "mine"), "{wanted:?}");
    }

    #[test]
    fn the_refusal_of_a_policy_that_only_an_override_names_has_its_route_and_the_way_out() {
        let unavailable = unavailable_policies(&overridden(), &Prepared { policies: vec![] });
        let [refusal] = &unavailable[..] else {
            panic!("{unavailable:?}");
        };
        assert_eq!(
            refusal.message,
            "policy `mine`, which a runtime override of route 2 names: its file is looked for in `policy-dir`, which is \
             not set"
        );
        let help = refusal.help.as_deref().unwrap();
        assert!(help.contains("conductor policy retract mine --route 2"), "{help}");
    }
}
