//! Trials of a route: specs for the request path, and the policies that they need.

use std::sync::Arc;

use conductor_config::{Config, RouteConfig};
use proxy::{CanarySpec, ShadowSpec, StopRule, TrialSpec};
use routing::PolicyVersions;

use super::pipelines::components;
use policy_store::WantedPolicy;

const SHADOW: &str = " (shadow)";

/// Returns the name of a policy's second copy, which runs as a shadow with instances, a circuit and a state of its own.
/// No policy of a configuration can have that name.
pub(crate) fn shadow_name(policy: &str) -> String {
    format!("{policy}{SHADOW}")
}

/// Returns the policy of which `name` is the shadow copy.
pub(super) fn shadowed(name: &str) -> Option<&str> {
    name.strip_suffix(SHADOW)
}

/// Returns the canaries and shadows of a route; `decides` finds a policy, `find` one that may not be there.
pub(super) fn trial_spec<E>(
    route: &RouteConfig,
    decides: impl Fn(&str) -> Result<Arc<PolicyVersions>, E>,
    find: impl Fn(&str) -> Result<Option<Arc<PolicyVersions>>, E>,
) -> Result<TrialSpec, E> {
    let trials = &route.trials;
    let canary = |share: &conductor_config::ShareConfig| {
        Ok(CanarySpec {
            policy: decides(&share.policy)?,
            share: share.share,
        })
    };
    // A twin may be refused although its policy was not, for lack of memory for example. Then the trial has no shadow.
    let shadow = |name: &String| {
        let found = find(&shadow_name(name)).transpose()?;
        Some(found.map(|policy| ShadowSpec {
            name: name.clone(),
            policy,
        }))
    };
    let rule = trials.canary;
    Ok(TrialSpec {
        canaries: trials.canaries.iter().map(canary).collect::<Result<_, E>>()?,
        rule: StopRule {
            ttft_margin: rule.ttft_margin,
            error_margin: rule.error_margin,
            confidence: rule.confidence,
            least: rule.least,
            consecutive_failures: rule.consecutive_failures,
            stop: rule.stop,
        },
        shadows: trials
            .shadows
            .iter()
            .filter_map(shadow)
            .collect::<Result<_, E>>()?,
        shadow_sample: trials.shadow_sample,
    })
}

/// Returns the twins of those policies that some route has as a shadow, by themselves or in a pipeline.
pub(super) fn shadows(config: &Config, wanted: &[WantedPolicy]) -> Vec<WantedPolicy> {
    let shadows = config.routes.iter().flat_map(|route| &route.trials.shadows);
    let asked: Vec<&str> = shadows.flat_map(|name| components(config, name)).collect();
    let is_shadow = |name: &String| asked.contains(&name.as_str());
    let shadows = wanted.iter().filter(|policy| is_shadow(&policy.name));
    let twin = |policy: &WantedPolicy| WantedPolicy {
        name: shadow_name(&policy.name),
        ..policy.clone()
    };
    shadows.map(twin).collect()
}
