//! Experiment of the active snapshot, as routers of one fleet share it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use experiment::{EvidenceTotals, StopCause};
use tracing::warn;

use super::{Stop, Trial};

/// Handle of an experiment whose evidence and verdicts are shared with other routers.
#[derive(Debug, Clone)]
pub struct TrialShare(Arc<Trial>);

/// Arm of a shared experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedArm {
    /// Name of the policy.
    pub policy: Box<str>,
    /// Id of its active version.
    pub version: Arc<str>,
    /// Set for a canary that is stopped.
    pub is_stopped: bool,
    /// Cause of the stop, if this router decided on it.
    pub cause: Option<StopCause>,
}

impl TrialShare {
    /// Returns the handle of an experiment.
    pub(crate) fn of(trial: &Arc<Trial>) -> Self {
        Self(Arc::clone(trial))
    }

    /// Returns the identity of the experiment: the same at every router with the same route, policies and rule.
    #[must_use]
    pub fn identity(&self) -> String {
        let Trial {
            pool,
            route,
            rule,
            arms,
            ..
        } = &*self.0;
        let arms = arms
            .iter()
            .map(|arm| format!("{}@{}={}", arm.policy, arm.version, arm.share));
        let arms: Vec<String> = arms.collect();
        format!("{pool} {route} {rule:?} {}", arms.join(" "))
    }

    /// Returns pool and route.
    #[must_use]
    pub fn place(&self) -> (&str, &str) {
        (&self.0.pool, &self.0.route)
    }

    /// Returns the arms, the control first.
    #[must_use]
    pub fn arms(&self) -> Vec<SharedArm> {
        let arms = self.0.arms.iter().map(|arm| {
            let stop = arm.stop();
            SharedArm {
                policy: arm.policy.clone(),
                version: Arc::clone(&arm.version),
                is_stopped: arm.is_stopped(),
                cause: stop.as_ref().and_then(|stop| stop.cause),
            }
        });
        arms.collect()
    }

    /// Returns whether this router stopped or resumed a canary since the last call.
    #[must_use]
    pub fn take_changed(&self, arm: usize) -> bool {
        let arm = self.0.arms.get(arm);
        arm.is_some_and(|arm| arm.stop_state.is_news.swap(false, Ordering::Relaxed))
    }

    /// Returns the totals of this router's evidence.
    #[must_use]
    pub fn totals(&self) -> EvidenceTotals {
        self.0.evidence().totals()
    }

    /// Replaces the evidence of the other routers. Canaries that the sum shows to be worse are stopped.
    pub fn set_others<'t>(&self, others: impl Iterator<Item = &'t EvidenceTotals>) {
        let worse = self.0.evidence().set_others(others);
        if self.0.rule.stop {
            for worse in worse {
                self.0.stop(worse);
            }
        }
    }

    /// Stops a canary, as another router decided. Returns false if it is stopped.
    pub fn obey_stop(&self, arm: usize, by: &str, reason: &str) -> bool {
        let Some(arm) = self.0.arms.get(arm).filter(|_| arm > 0) else {
            return false;
        };
        let stop = Stop {
            cause: None,
            by: Some(by.into()),
            at: SystemTime::now(),
        };
        if !self.0.stop_arm(arm, stop) {
            return false;
        }
        warn!(
            policy = &*arm.policy,
            version = &*arm.version,
            pool = self.0.pool,
            route = self.0.route,
            router = by,
            reason,
            "canary stopped, as another router of the fleet decided"
        );
        true
    }

    /// Resumes a canary, as another router decided, and discards the evidence. Returns false if it is not stopped.
    pub fn obey_resume(&self, arm: usize) -> bool {
        let Some(stopped) = self.0.arms.get(arm).filter(|arm| arm.is_stopped()) else {
            return false;
        };
        stopped.resume();
        self.0.forget_evidence();
        true
    }
}
