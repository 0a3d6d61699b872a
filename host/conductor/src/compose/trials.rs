//! What a route tries out, as the request path is told, and the policies that takes.

use std::sync::Arc;

use conductor_config::{Config, RouteConfig};
use proxy::{CanarySpec, ShadowSpec, StopRule, TrialSpec};
use routing::PolicyVersions;

use crate::policy_library::WantedPolicy;

/// Under what a policy is kept a second time, to be asked as a shadow: with instances, a circuit and a state of its own. No
/// policy of a configuration can be called so.
pub(crate) fn shadow_name(policy: &str) -> String {
    format!("{policy} (shadow)")
}

/// The canaries and shadows of a route; `decides` finds a policy, `find` one that may not be there.
pub(super) fn trial_spec(
    route: &RouteConfig,
    decides: impl Fn(&str) -> Arc<PolicyVersions>,
    find: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
) -> TrialSpec {
    let trials = &route.trials;
    let canary = |share: &conductor_config::ShareConfig| CanarySpec {
        policy: decides(&share.policy),
        share: share.share,
    };
    // A twin may be refused where the policy was not, for want of memory say: then nothing is asked.
    let shadow = |name: &String| {
        Some(ShadowSpec {
            name: name.clone(),
            policy: find(&shadow_name(name))?,
        })
    };
    let rule = trials.canary;
    TrialSpec {
        canaries: trials.canaries.iter().map(canary).collect(),
        rule: StopRule {
            ttft_margin: rule.ttft_margin,
            error_margin: rule.error_margin,
            confidence: rule.confidence,
            least: rule.least,
            stop: rule.stop,
        },
        shadows: trials.shadows.iter().filter_map(shadow).collect(),
        shadow_sample: trials.shadow_sample,
    }
}

/// The twins of those policies that some route has as a shadow.
pub(super) fn shadows(config: &Config, wanted: &[WantedPolicy]) -> Vec<WantedPolicy> {
    let routes = || config.routes.iter();
    let is_shadow = |name: &String| routes().any(|route| route.trials.shadows.contains(name));
    let shadows = wanted.iter().filter(|policy| is_shadow(&policy.name));
    let twin = |policy: &WantedPolicy| WantedPolicy {
        name: shadow_name(&policy.name),
        ..policy.clone()
    };
    shadows.map(twin).collect()
}
