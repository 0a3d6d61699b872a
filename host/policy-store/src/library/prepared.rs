//! Prepared policies: the versions that a configuration gets if it is accepted.

use std::sync::Arc;

use super::entry::SourceContent;
use super::version::LoadedVersion;
use super::{PolicyProblem, WantedPolicy};

/// Result of preparing a wanted policy.
#[derive(Debug)]
pub enum Outcome {
    /// The bytes with these settings are active already.
    Active,
    /// An operator rolled the bytes back: another version stays active.
    HeldBack,
    /// A new version works.
    Fresh(Box<LoadedVersion>),
    /// The file may be half-written: a later look decides.
    Unsettled,
    /// A new version is compiled: a later look finds it.
    Loading,
    /// No version can be used.
    Failed(Arc<PolicyProblem>),
}

/// Wanted policy with the result of its preparation.
#[derive(Debug)]
pub struct PreparedPolicy {
    /// Policy as the configuration names it.
    pub wanted: WantedPolicy,
    /// Result of its preparation.
    pub outcome: Outcome,
    pub(super) found: Option<SourceContent>,
    /// True if source and settings are active with a working version: only the bytes may be new.
    pub accepted: bool,
}

/// All wanted policies.
#[derive(Debug)]
pub struct Prepared {
    /// Policies in the order of the configuration.
    pub policies: Vec<PreparedPolicy>,
}

impl Prepared {
    /// Returns true if a file may be half-written and should be read again soon.
    pub fn is_unsettled(&self) -> bool {
        let mut outcomes = self.policies.iter().map(|policy| &policy.outcome);
        outcomes.any(|outcome| matches!(outcome, Outcome::Unsettled))
    }

    /// Returns the policies whose new version is compiled.
    pub fn loading(&self) -> impl Iterator<Item = &PreparedPolicy> {
        let policies = self.policies.iter();
        policies.filter(|policy| matches!(policy.outcome, Outcome::Loading))
    }

    /// Returns the wanted policy of that name.
    pub(super) fn wanted(&self, name: &str) -> Option<&WantedPolicy> {
        let mut wanted = self.policies.iter().map(|policy| &policy.wanted);
        wanted.find(|wanted| wanted.name == name)
    }

    /// Returns the new version of a policy, if any.
    pub fn fresh(&self, name: &str) -> Option<&LoadedVersion> {
        let mut named = self.policies.iter().filter(|policy| policy.wanted.name == name);
        named.find_map(|policy| match &policy.outcome {
            Outcome::Fresh(version) => Some(&**version),
            _ => None,
        })
    }
}
