//! What a route tries out, as the composition root says it.

use std::sync::Arc;

use routing::PolicyVersions;

use crate::arm::evidence::StopRule;

/// What a route tries out beside its policy.
#[derive(Debug, Default)]
pub struct TrialSpec {
    /// Policies that decide a share of its requests; not together with policies for prefill or decode workers.
    pub canaries: Vec<CanarySpec>,
    /// When a canary is worse.
    pub rule: StopRule,
    /// Policies that are asked besides and decide nothing. Their versions are not those that decide anywhere: faults, state and
    /// circuits are their own.
    pub shadows: Vec<ShadowSpec>,
    /// Share of the requests that they are asked about, up to 1.
    pub shadow_sample: f64,
}

/// A policy that decides a share of a route's requests.
#[derive(Debug)]
pub struct CanarySpec {
    /// What decides.
    pub policy: Arc<PolicyVersions>,
    /// Of 10,000 parts of its sessions; all canaries together have no more than that.
    pub share: u32,
}

/// A policy that is only asked.
#[derive(Debug)]
pub struct ShadowSpec {
    /// Its name in the configuration.
    pub name: String,
    /// What is asked.
    pub policy: Arc<PolicyVersions>,
}
