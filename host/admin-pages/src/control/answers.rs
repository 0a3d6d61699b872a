//! Changes of instances, policies and routes: their results and refusals.

use policy_store::RollbackError;
use routing::Generation;
use runtime_overrides::{ChangeError, Done, OverrideReport, RouteChangeError};
use serde::Serialize;
use thiserror::Error;

use super::PlanError;

/// An applied change of an instance.
#[derive(Debug)]
pub struct InstanceAnswer {
    /// Effect.
    pub done: Done,
    /// Generation that has the change; the active one where it did nothing.
    pub generation: Generation,
}

/// A refused change of an instance.
#[derive(Debug, Error)]
pub enum RefusedChange {
    /// The change does not fit the fleet.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The resulting configuration is refused.
    #[error("failed to apply the change")]
    Config(#[source] PlanError),
}

/// Requested action on a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyAction {
    /// Activate the version before.
    RollBack,
    /// Load the file again, rolled back or not, and close the circuits of all versions.
    Resume,
}

/// A change of one policy.
#[derive(Debug)]
pub struct PolicyChange {
    /// Name in the configuration.
    pub policy: String,
    /// Action.
    pub action: PolicyAction,
}

/// A refused change of a policy.
#[derive(Debug, Error)]
pub enum RefusedPolicyChange {
    /// There is no version to change to.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
    /// The policy is resumed, but its file is invalid.
    #[error(
        "the policy `{policy}` is resumed, but its file cannot be activated; the active version is kept: {problem}"
    )]
    Unavailable {
        /// Name of the policy.
        policy: String,
        /// Problem of the key.
        problem: String,
    },
    /// The request path refuses it.
    #[error("failed to apply the policy's versions")]
    Plan(#[source] PlanError),
}

/// An applied change of a route.
#[derive(Debug, Serialize)]
pub struct RouteAnswer {
    /// Result in one sentence.
    pub message: String,
    /// The number of the route, from 1.
    pub route: usize,
    /// The generation that has it.
    pub generation: u64,
    /// Every override there is now.
    pub overrides: Vec<OverrideReport>,
}

/// A refused change of a route.
#[derive(Debug, Error)]
pub enum RefusedRouteChange {
    /// The change does not fit the routes.
    #[error(transparent)]
    Change(#[from] RouteChangeError),
    /// The route's shadow does not run the version that would decide.
    #[error(
        "failed to promote `{policy}`: version {active} would decide, and its shadow runs {}; try that version out first, \
         as a shadow or a canary", shadow.as_deref().unwrap_or("none")
    )]
    VersionNotTried {
        /// Name of the policy, or of the scorer of a pipeline.
        policy: String,
        /// Version that would decide.
        active: String,
        /// Version of the shadow.
        shadow: Option<String>,
    },
    /// The policy cannot be had.
    #[error("failed to load what the change needs: {0}")]
    Unavailable(String),
    /// The fleet does not agree on it.
    #[error("the routers of the fleet do not change together, and nothing changes: {0}")]
    Fleet(String),
    /// Another router's decision on the route was accepted in its place.
    #[error(
        "router `{0}` of the fleet decided otherwise on this route first, and that decision stands: see `/admin/policies`"
    )]
    Overtaken(String),
    /// The fleet made the change, and this router could not.
    #[error("the routers of the fleet do not change together: {0}")]
    Alone(String),
    /// The resulting configuration is refused.
    #[error("failed to apply the change")]
    Config(#[source] PlanError),
}
