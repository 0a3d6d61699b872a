//! Settings of a policy in a configuration, as the runtime takes them.

use conductor_config::PolicyConfig;
use policy_runtime::PolicySettings;

/// Returns the parameters and limits of a policy.
#[must_use]
pub fn policy_settings(policy: &PolicyConfig) -> PolicySettings {
    PolicySettings {
        params_json: policy.params_json.clone(),
        cpu_budget: policy.limits.cpu,
        wall_limit: policy.limits.wall,
        memory_bytes: usize::try_from(policy.limits.memory).unwrap_or(usize::MAX),
    }
}
