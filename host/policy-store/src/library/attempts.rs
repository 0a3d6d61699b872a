//! Results of load attempts that are not active, so that no look loads the same bytes again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use policy_runtime::PolicySettings;

use super::component::Digest;
use super::loading::LoadFinished;
use super::prepared::Outcome;
use super::version::LoadedVersion;
use super::{PolicyProblem, WantedPolicy};

/// Attempts kept per policy: for the active configuration, and for one that waits.
const MOST: usize = 4;

#[derive(Debug)]
struct LoadAttempt {
    done: LoadFinished,
    /// True if the result was used since the last sweep.
    is_used: Cell<bool>,
}

impl LoadAttempt {
    fn is_of(&self, digest: &Digest, settings: &PolicySettings) -> bool {
        self.done.order.digest == *digest && self.done.order.settings == *settings
    }

    fn outcome(&self, wanted: &WantedPolicy) -> Outcome {
        self.is_used.set(true);
        let LoadFinished { order, bytes, result } = &self.done;
        match result {
            Ok(policy) => {
                let version = LoadedVersion::new(Arc::clone(policy), order.digest, wanted);
                if version.does(wanted) {
                    Outcome::Fresh(Box::new(version.keeping(bytes.clone())))
                } else {
                    Outcome::Failed(Arc::new(PolicyProblem::NotAScorer))
                }
            }
            Err(problem) => Outcome::Failed(Arc::clone(problem)),
        }
    }
}

/// Attempts by policy name, the latest first.
#[derive(Debug, Default)]
pub(super) struct LoadAttempts(BTreeMap<String, Vec<LoadAttempt>>);

impl LoadAttempts {
    /// Adds an attempt.
    pub(super) fn add(&mut self, done: LoadFinished) {
        let attempts = self.0.entry(done.order.policy.clone()).or_default();
        let is_used = Cell::new(true);
        attempts.insert(0, LoadAttempt { done, is_used });
        attempts.truncate(MOST);
    }

    /// Returns the result for these bytes with the wanted settings, if they were tried.
    pub(super) fn outcome(&self, wanted: &WantedPolicy, digest: &Digest) -> Option<Outcome> {
        let mut attempts = self.0.get(&wanted.name)?.iter();
        let same = attempts.find(|attempt| attempt.is_of(digest, &wanted.settings))?;
        Some(same.outcome(wanted))
    }

    /// Returns true if the policy has an attempt.
    pub(super) fn has(&self, policy: &str) -> bool {
        self.0.contains_key(policy)
    }

    /// Forgets the attempts of other policies.
    pub(super) fn retain(&mut self, policies: impl Fn(&str) -> bool) {
        self.0.retain(|policy, _| policies(policy));
    }

    /// Forgets all attempts of a policy.
    pub(super) fn forget(&mut self, policy: &str) {
        self.0.remove(policy);
    }

    /// Forgets the attempt whose version is active now.
    pub(super) fn forget_one(&mut self, policy: &str, digest: &Digest, settings: &PolicySettings) {
        if let Some(attempts) = self.0.get_mut(policy) {
            attempts.retain(|attempt| !attempt.is_of(digest, settings));
        }
        self.0.retain(|_, attempts| !attempts.is_empty());
    }

    /// Forgets the attempts that were not used since the last sweep.
    pub(super) fn sweep(&mut self) {
        for attempts in self.0.values_mut() {
            attempts.retain(|attempt| attempt.is_used.replace(false));
        }
        self.0.retain(|_, attempts| !attempts.is_empty());
    }
}
