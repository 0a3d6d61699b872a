//! Agreed decision on a route: its active policies, and those that the routers stage.

use std::collections::BTreeMap;

use runtime_overrides::SharedOverride;
use serde::{Deserialize, Serialize};

/// Decision on a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RouteDecision {
    /// Fingerprint of the file's route.
    pub(super) fingerprint: String,
    /// Number of the route in the file of the router that decided.
    pub(super) route: usize,
    /// Policies that every router uses.
    pub(super) active: RouteVersion,
    /// Policies that every router holds ready, for a switch by the next revision.
    pub(super) staged: Option<RouteVersion>,
}

/// Policies of a route, with the components of those.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RouteVersion {
    /// Override of the file's policies.
    pub(super) policies: SharedOverride,
    /// SHA-256 of each component, by its name.
    pub(super) components: BTreeMap<String, String>,
}
