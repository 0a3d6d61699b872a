//! Trials of a route: specs for the request path, and the policies that they need.

use std::sync::Arc;

use conductor_config::RouteConfig;
use proxy::{CanarySpec, ShadowSpec, StopRule, TrialSpec};
use routing::PolicyVersions;

use policy_store::shadow_name;

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
