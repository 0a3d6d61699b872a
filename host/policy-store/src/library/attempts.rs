//! Results of load attempts that are not active, so that no look loads the same bytes again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use policy_runtime::PolicySettings;

use super::digest::Digest;
use super::loading::LoadFinished;
use super::prepared::Outcome;
use super::version::LoadedVersion;
use super::{PolicyProblem, WantedPolicy};

/// Attempts kept per policy: for the active configuration, and for one that waits.
const MOST: usize = 4;
/// Least pause after a compiler process that failed through no fault of its component.
const PAUSE: Duration = Duration::from_secs(30);
/// The pause in durations of the attempt: compilers that time out again and again leave the processors to others.
const PAUSE_ATTEMPTS: u32 = 10;

#[derive(Debug)]
struct LoadAttempt {
    done: LoadFinished,
    ended: Instant,
    /// True if the result was used since the last sweep.
    is_used: Cell<bool>,
}

impl LoadAttempt {
    fn is_of(&self, digest: &Digest, settings: &PolicySettings) -> bool {
        self.done.order.digest == *digest && self.done.order.settings == *settings
    }

    /// Returns true if it failed so that another attempt may succeed, and the pause after it is over.
    fn is_due_again(&self, now: Instant) -> bool {
        let is_transient = self.problem().is_some_and(PolicyProblem::is_transient);
        let pause = PAUSE.max(self.done.took.saturating_mul(PAUSE_ATTEMPTS));
        is_transient && now.saturating_duration_since(self.ended) >= pause
    }

    fn problem(&self) -> Option<&PolicyProblem> {
        self.done.result.as_ref().err().map(|problem| &**problem)
    }

    fn outcome(&self, wanted: &WantedPolicy) -> Outcome {
        self.is_used.set(true);
        let LoadFinished {
            order, bytes, result, ..
        } = &self.done;
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
    /// Adds an attempt that ended `now`.
    pub(super) fn add(&mut self, done: LoadFinished, now: Instant) {
        let attempts = self.0.entry(done.order.policy.clone()).or_default();
        let attempt = LoadAttempt {
            done,
            ended: now,
            is_used: Cell::new(true),
        };
        attempts.insert(0, attempt);
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

    /// Forgets the attempts whose compiler process failed, whatever the cause.
    pub(super) fn forget_compilers(&mut self) {
        self.keep(|attempt| !attempt.problem().is_some_and(PolicyProblem::is_of_compiler));
    }

    /// Forgets the attempts that were not used since the last sweep, and those that are due again.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.keep(|attempt| attempt.is_used.replace(false) && !attempt.is_due_again(now));
    }

    fn keep(&mut self, keeps: impl Fn(&LoadAttempt) -> bool) {
        for attempts in self.0.values_mut() {
            attempts.retain(&keeps);
        }
        self.0.retain(|_, attempts| !attempts.is_empty());
    }
}
