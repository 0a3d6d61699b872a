//! Policies of a route: those that decide, its shadows, and the experiment of its arms.

use std::sync::Arc;

use experiment::Assignment;
use routing::{Phase, PolicyVersion, PolicyVersions};

use crate::base::current_state::CurrentState;
use crate::dispatch::shadow::Shadows;
use crate::limits::admission::Objectives;
use crate::observe::decided_by::VersionNames;
use crate::observe::experiments::Trial;
use crate::observe::policies::{PolicyFamilies, PolicyMetrics};

/// Policies of one route of a snapshot.
#[derive(Debug)]
pub(crate) struct RoutePolicies {
    /// Index of the route in the snapshot.
    pub(crate) route: usize,
    /// Policy for whole requests, and for the legs that the next two policies do not decide.
    pub(crate) whole: DecidingPolicy,
    pub(crate) prefill: Option<DecidingPolicy>,
    pub(crate) decode: Option<DecidingPolicy>,
    /// Policies of arms 1 and up.
    pub(crate) canaries: Box<[DecidingPolicy]>,
    /// Experiment, where there are canaries.
    pub(crate) trial: Option<Arc<Trial>>,
    /// Shadow policies beside the arms, where there are any.
    pub(crate) shadows: Option<Shadows>,
    /// Objectives of the route's requests.
    pub(crate) objectives: Objectives,
    /// Policies of the route in the active snapshot.
    pub(crate) current: Arc<CurrentState<Self>>,
}

/// Policy with its metrics.
#[derive(Debug)]
pub(crate) struct DecidingPolicy {
    pub(crate) versions: Arc<PolicyVersions>,
    pub(crate) metrics: PolicyMetrics,
    pub(crate) names: VersionNames,
}

impl DecidingPolicy {
    pub(crate) fn new(versions: Arc<PolicyVersions>, metrics: &PolicyFamilies) -> Self {
        Self {
            metrics: metrics.policy(versions.name()),
            names: VersionNames::of(&versions),
            versions,
        }
    }
}

impl RoutePolicies {
    /// Returns the policy that places that part of a request of that arm.
    pub(crate) fn policy(&self, phase: Phase, arm: usize) -> &DecidingPolicy {
        if let Some(canary) = self.canary(arm) {
            return canary;
        }
        let own = match phase {
            Phase::Mixed => None,
            Phase::Prefill => self.prefill.as_ref(),
            Phase::Decode => self.decode.as_ref(),
        };
        own.unwrap_or(&self.whole)
    }

    /// Returns all policies of the route: those that decide, and its shadows.
    pub(crate) fn all(&self) -> impl Iterator<Item = &PolicyVersions> {
        let deciding = self.of_control().chain(&self.canaries);
        let shadows = self.shadows.iter().flat_map(Shadows::policies);
        deciding.map(|policy| &*policy.versions).chain(shadows)
    }

    /// Returns the policies of the control arm.
    fn of_control(&self) -> impl Iterator<Item = &DecidingPolicy> {
        let by_phase = self.prefill.iter().chain(&self.decode);
        std::iter::once(&self.whole).chain(by_phase)
    }

    /// Returns `true` if each phase has a policy of its own.
    pub(crate) fn is_by_phase(&self) -> bool {
        self.prefill.is_some() || self.decode.is_some()
    }

    /// Returns `true` if any of an arm's policies needs the prompt's tokens.
    pub(crate) fn needs_tokens(&self, arm: usize) -> bool {
        if let Some(canary) = self.canary(arm) {
            return canary.versions.needs_tokens();
        }
        self.of_control().any(|policy| policy.versions.needs_tokens())
    }

    /// Returns the policy of an arm that is not the control.
    fn canary(&self, arm: usize) -> Option<&DecidingPolicy> {
        self.canaries.get(arm.checked_sub(1)?)
    }

    /// Returns the arm of a request that had that arm of the route's policies `before`: that of the same canary unless
    /// it is stopped, else the control.
    pub(crate) fn arm_after(&self, before: &Self, arm: usize) -> usize {
        let arm = if std::ptr::eq(self, before) {
            arm
        } else {
            let kept = before.canary(arm).and_then(|canary| {
                let name = canary.versions.name();
                self.canaries
                    .iter()
                    .position(|canary| canary.versions.name() == name)
            });
            kept.map_or(0, |position| position + 1)
        };
        match self.trial() {
            Some(trial) if trial.is_stopped(arm) => 0,
            _ => arm,
        }
    }

    /// Returns the active version of each policy that decides. `None` where a phase has no policy of its own.
    fn active(&self) -> impl Iterator<Item = Option<&PolicyVersion>> {
        let own = [Some(&self.whole), self.prefill.as_ref(), self.decode.as_ref()];
        let policies = own.into_iter().chain(self.canaries.iter().map(Some));
        policies.map(|policy| Some(policy?.versions.active()))
    }

    /// Returns `true` if the same versions decide as those of `before`.
    pub(crate) fn decides_as(&self, before: &Self) -> bool {
        let mut pairs = self.active().zip(before.active());
        self.canaries.len() == before.canaries.len()
            && pairs.all(|pair| match pair {
                (Some(now), Some(was)) => now.is_same(was),
                (now, was) => now.is_none() && was.is_none(),
            })
    }

    /// Assigns a request to an arm. `None` where there is one arm only.
    pub(crate) fn assign(&self, session: Option<u64>, seed: u64) -> Option<Assignment> {
        Some(self.trial.as_ref()?.assign(session, seed))
    }

    /// Returns the experiment of the route, where it has several arms.
    pub(crate) fn trial(&self) -> Option<&Arc<Trial>> {
        self.trial.as_ref()
    }
}
