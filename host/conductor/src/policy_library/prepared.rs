//! Policies that were loaded but are not in force: what a configuration would get if it were accepted.

use std::sync::Arc;

use policy_runtime::WasmPolicy;

use super::component::{Digest, Seen};
use super::{PolicyProblem, WantedPolicy};

/// A component that works with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) policy: Arc<WasmPolicy>,
    pub(crate) digest: Digest,
}

/// What came of one wanted policy.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// These bytes with these settings are in force already.
    InForce,
    /// A version that works.
    Fresh(Version),
    /// Its file seems half-written: look again shortly.
    Unsettled,
    /// It cannot be used.
    Failed(Arc<PolicyProblem>),
}

/// One wanted policy.
#[derive(Debug)]
pub(crate) struct PreparedPolicy {
    pub(crate) wanted: WantedPolicy,
    pub(crate) outcome: Outcome,
    pub(super) seen: Option<Seen>,
    /// Source and settings are in force with some version that works; only the bytes may be new.
    pub(crate) accepted: bool,
}

/// Every wanted policy.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) policies: Vec<PreparedPolicy>,
}

impl Prepared {
    /// Whether some file seemed half-written and should be looked at again soon.
    pub(crate) fn is_unsettled(&self) -> bool {
        let mut outcomes = self.policies.iter().map(|policy| &policy.outcome);
        outcomes.any(|outcome| matches!(outcome, Outcome::Unsettled))
    }

    /// The new version of a policy, where there is one.
    pub(crate) fn fresh(&self, name: &str) -> Option<&Arc<WasmPolicy>> {
        let mut named = self.policies.iter().filter(|policy| policy.wanted.name == name);
        named.find_map(|policy| match &policy.outcome {
            Outcome::Fresh(version) => Some(&version.policy),
            _ => None,
        })
    }
}
