//! Configuration of a route's canaries and shadows.

use std::sync::Arc;

use experiment::StopRule;
use routing::PolicyVersions;

/// Canaries and shadows of a route.
#[derive(Debug, Default)]
pub struct TrialSpec {
    /// Canaries. They exclude policies for prefill or decode workers.
    pub canaries: Vec<CanarySpec>,
    /// Stop rule.
    pub rule: StopRule,
    /// Shadow policies, which are called but decide nothing. They have versions, faults, state and circuits of their
    /// own.
    pub shadows: Vec<ShadowSpec>,
    /// Share of the requests for which shadows are called, up to 1.
    pub shadow_sample: f64,
}

/// Policy that decides a share of a route's requests.
#[derive(Debug)]
pub struct CanarySpec {
    /// The policy.
    pub policy: Arc<PolicyVersions>,
    /// Share of the sessions in units of 1/10,000. All canaries together have at most 10,000.
    pub share: u32,
}

/// Policy that is called but decides nothing.
#[derive(Debug)]
pub struct ShadowSpec {
    /// Name in the configuration.
    pub name: String,
    /// The policy.
    pub policy: Arc<PolicyVersions>,
}
