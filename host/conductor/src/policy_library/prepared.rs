//! Policies that were loaded but are not in force: what a configuration would get if it were accepted.

use std::sync::Arc;

use policy_runtime::WasmPolicy;
use routing::{Circuit, PolicyVersion};

use super::component::{Digest, Seen};
use super::{PolicyProblem, WantedPolicy};

/// A component that works with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) policy: Arc<WasmPolicy>,
    pub(crate) digest: Digest,
    /// The same for as long as the version is kept.
    pub(crate) circuit: Arc<Circuit>,
}

/// Characters of a version's id: enough to tell versions apart at sight.
const ID_LENGTH: usize = 12;

impl Version {
    pub(super) fn new(policy: Arc<WasmPolicy>, digest: Digest) -> Self {
        Self {
            policy,
            digest,
            circuit: Arc::default(),
        }
    }

    /// As a link of a chain.
    pub(super) fn link(&self) -> PolicyVersion {
        let sha256 = self.policy.sha256();
        PolicyVersion {
            policy: Arc::clone(&self.policy) as _,
            circuit: Arc::clone(&self.circuit),
            id: sha256.get(..ID_LENGTH).unwrap_or(sha256).into(),
        }
    }
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
    pub(crate) fn fresh(&self, name: &str) -> Option<&Version> {
        let mut named = self.policies.iter().filter(|policy| policy.wanted.name == name);
        named.find_map(|policy| match &policy.outcome {
            Outcome::Fresh(version) => Some(version),
            _ => None,
        })
    }
}
