//! Policies that were loaded but are not in force: what a configuration would get if it were accepted.

use std::sync::Arc;

use super::entry::SourceContent;
use super::version::LoadedVersion;
use super::{PolicyProblem, WantedPolicy};

/// What came of one wanted policy.
#[derive(Debug)]
pub enum Outcome {
    /// These bytes with these settings are in force already.
    Active,
    /// An operator rolled these bytes back: another version stays in force.
    HeldBack,
    /// A version that works.
    Fresh(Box<LoadedVersion>),
    /// Its file seems half-written: look again shortly.
    Unsettled,
    /// It is being compiled: look again when that is done.
    Loading,
    /// It cannot be used.
    Failed(Arc<PolicyProblem>),
}

/// One wanted policy.
#[derive(Debug)]
pub struct PreparedPolicy {
    /// Policy as the configuration names it.
    pub wanted: WantedPolicy,
    /// Result of its preparation.
    pub outcome: Outcome,
    pub(super) found: Option<SourceContent>,
    /// Source and settings are in force with some version that works; only the bytes may be new.
    pub accepted: bool,
}

/// Every wanted policy.
#[derive(Debug)]
pub struct Prepared {
    /// Policies in the order of the configuration.
    pub policies: Vec<PreparedPolicy>,
}

impl Prepared {
    /// Whether some file seemed half-written and should be looked at again soon.
    pub fn is_unsettled(&self) -> bool {
        let mut outcomes = self.policies.iter().map(|policy| &policy.outcome);
        outcomes.any(|outcome| matches!(outcome, Outcome::Unsettled))
    }

    /// Those that are being compiled.
    pub fn loading(&self) -> impl Iterator<Item = &PreparedPolicy> {
        let policies = self.policies.iter();
        policies.filter(|policy| matches!(policy.outcome, Outcome::Loading))
    }

    /// What is wanted under that name, where anything is.
    pub(super) fn wanted(&self, name: &str) -> Option<&WantedPolicy> {
        let mut wanted = self.policies.iter().map(|policy| &policy.wanted);
        wanted.find(|wanted| wanted.name == name)
    }

    /// The new version of a policy, where there is one.
    pub fn fresh(&self, name: &str) -> Option<&LoadedVersion> {
        let mut named = self.policies.iter().filter(|policy| policy.wanted.name == name);
        named.find_map(|policy| match &policy.outcome {
            Outcome::Fresh(version) => Some(&**version),
            _ => None,
        })
    }
}
