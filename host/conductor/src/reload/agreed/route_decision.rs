//! Agreed decision on a route: its active policies, and those that the routers stage.

use std::collections::BTreeMap;

use agreement::AgreedEntry;
use runtime_overrides::{RouteAction, RouteChange, SharedOverride};
use serde::{Deserialize, Serialize};

/// Decision on a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RouteDecision {
    /// Fingerprint of the file's route.
    pub(super) fingerprint: String,
    /// Number of the route in the file of the router that decided.
    pub(super) route: usize,
    /// Policies that every router uses, unless the route is undecided.
    pub(super) active: RouteVersion,
    /// Policies that every router holds ready, for a switch by the next revision.
    pub(super) staged: Option<RouteVersion>,
    /// Change that an operator requested, for other routers that get the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<String>,
    /// Set until the first change of a route is switched. `active` has the policies of the first author then, and every
    /// router keeps its own. Routers of earlier releases follow `active`.
    #[serde(default, rename = "undecided", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_undecided: bool,
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

#[cfg(test)]
impl RouteVersion {
    /// Returns policies of one component with these bytes.
    pub(super) fn of_bytes(sha256: &str) -> Self {
        Self {
            policies: serde_json::from_value(serde_json::Value::Null).unwrap(),
            components: BTreeMap::from([("p".to_owned(), sha256.to_owned())]),
        }
    }
}

impl RouteDecision {
    /// Returns the decision of an entry, if it is one.
    pub(super) fn of(entry: &AgreedEntry) -> Option<Self> {
        serde_json::from_value(entry.value.clone()).ok()
    }

    /// Returns the policies that the route has in the end. `None` if each router keeps its own.
    pub(super) fn outcome(&self) -> Option<&RouteVersion> {
        let active = (!self.is_undecided).then_some(&self.active);
        self.staged.as_ref().or(active)
    }

    /// Returns the text of a change.
    pub(super) fn text_of(change: &RouteChange) -> String {
        let action = match change.action {
            RouteAction::Promote => "promote",
            RouteAction::Shadow(_) => "shadow",
            RouteAction::Canary(_) => "canary",
            RouteAction::Retract => "retract",
        };
        format!("{action} {}", change.policy)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_of_a_router_that_writes_no_change_is_read_and_written_as_it_was() {
        let version = RouteVersion::of_bytes("0123");
        let decision = RouteDecision {
            fingerprint: "f".to_owned(),
            route: 1,
            active: version.clone(),
            staged: None,
            change: None,
            is_undecided: false,
        };
        let written = json!(decision);
        for later in ["change", "undecided"] {
            assert!(written.get(later).is_none(), "{written}");
        }
        let mut read: RouteDecision = serde_json::from_value(written).unwrap();
        assert_eq!(read, decision);
        assert_eq!(read.outcome(), Some(&version));
        read.change = Some("promote mine".to_owned());
        assert_eq!(json!(read)["change"], "promote mine");
    }
}
