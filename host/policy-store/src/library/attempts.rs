//! What came of bytes and settings that are not in force, so that nothing is loaded again at every look.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use policy_runtime::PolicySettings;

use super::component::Digest;
use super::loading::LoadFinished;
use super::prepared::Outcome;
use super::version::LoadedVersion;
use super::{PolicyProblem, WantedPolicy};

/// Tries that are remembered of one policy: of the configuration that is active, and of one that waits to be.
const MOST: usize = 4;

#[derive(Debug)]
struct LoadAttempt {
    done: LoadFinished,
    /// Whether anybody asked since the last sweep.
    is_asked: Cell<bool>,
}

impl LoadAttempt {
    fn is_of(&self, digest: &Digest, settings: &PolicySettings) -> bool {
        self.done.order.digest == *digest && self.done.order.settings == *settings
    }

    fn outcome(&self, wanted: &WantedPolicy) -> Outcome {
        self.is_asked.set(true);
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

/// By the policies' names, the latest first.
#[derive(Debug, Default)]
pub(super) struct LoadAttempts(BTreeMap<String, Vec<LoadAttempt>>);

impl LoadAttempts {
    /// Remembers one, and what comes of it for `wanted`.
    pub(super) fn add(&mut self, done: LoadFinished) {
        let attempts = self.0.entry(done.order.policy.clone()).or_default();
        let is_asked = Cell::new(true);
        attempts.insert(0, LoadAttempt { done, is_asked });
        attempts.truncate(MOST);
    }

    /// What came of these bytes with the settings that are wanted, where they were tried.
    pub(super) fn outcome(&self, wanted: &WantedPolicy, digest: &Digest) -> Option<Outcome> {
        let mut attempts = self.0.get(&wanted.name)?.iter();
        let same = attempts.find(|attempt| attempt.is_of(digest, &wanted.settings))?;
        Some(same.outcome(wanted))
    }

    /// Whether there is any of that policy.
    pub(super) fn has(&self, policy: &str) -> bool {
        self.0.contains_key(policy)
    }

    /// Forgets those of other policies.
    pub(super) fn retain(&mut self, policies: impl Fn(&str) -> bool) {
        self.0.retain(|policy, _| policies(policy));
    }

    /// Forgets every one of a policy.
    pub(super) fn forget(&mut self, policy: &str) {
        self.0.remove(policy);
    }

    /// Forgets the one that is in force by now.
    pub(super) fn forget_one(&mut self, policy: &str, (digest, settings): (&Digest, &PolicySettings)) {
        if let Some(attempts) = self.0.get_mut(policy) {
            attempts.retain(|attempt| !attempt.is_of(digest, settings));
        }
        self.0.retain(|_, attempts| !attempts.is_empty());
    }

    /// Forgets those that nobody asked for since the last time.
    pub(super) fn sweep(&mut self) {
        for attempts in self.0.values_mut() {
            attempts.retain(|attempt| attempt.is_asked.replace(false));
        }
        self.0.retain(|_, attempts| !attempts.is_empty());
    }
}
