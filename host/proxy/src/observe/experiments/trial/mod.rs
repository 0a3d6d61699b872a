//! Experiment of one route: assigns requests to arms, collects evidence, and stops worse canaries.

mod shared;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use experiment::{Assignment, Evidence, Measure, RequestResult, StopCause, StopRule, WorseArm, assign};
use routing::PolicyVersions;
use tracing::{info, warn};

use super::metrics::{ArmFamilies, ArmLabel, ArmMetrics};
use crate::base::label::Outcome;

/// Experiment of one route.
///
/// The experiment is shared by consecutive snapshots while no arm changes. Requests in flight keep it
/// alive, so it holds no policy.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(super) pool: String,
    /// Matching rule of the route as text.
    pub(super) route: String,
    pub(super) rule: StopRule,
    /// Salt of the route's assignment, so that the same sessions are not in every route's canary.
    salt: u64,
    /// Arms, the control first.
    pub(super) arms: Box<[Arm]>,
    pub(super) since: SystemTime,
    evidence: Mutex<Evidence>,
    held: Arc<dyn HeldRequests>,
}

/// Held requests of the pool, which are decided again once a canary is stopped.
pub(crate) trait HeldRequests: fmt::Debug + Send + Sync {
    /// Lets each of them be decided again once.
    fn decide_again(self: Arc<Self>);
}

/// Arm of an experiment.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) policy: Box<str>,
    pub(super) version: Arc<str>,
    /// Share in units of 1/10,000.
    pub(super) share: u32,
    stop_state: Arc<StopState>,
    metrics: ArmMetrics,
}

/// Stop state of a canary.
///
/// The state is shared over reloads that keep its version and share, because a request from before a reload can
/// stop it.
#[derive(Debug, Default)]
struct StopState {
    is_stopped: AtomicBool,
    stop: Mutex<Option<Stop>>,
    /// Set if this router stopped or resumed it and has not notified the other routers yet.
    is_news: AtomicBool,
}

/// Reason and time of a stop.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    /// Cause; `None` if another router decided.
    pub(super) cause: Option<StopCause>,
    /// The other router that decided.
    pub(super) by: Option<Box<str>>,
    pub(super) at: SystemTime,
}

/// Configuration of an experiment.
pub(crate) struct TrialParts<'a> {
    pub(crate) pool: &'a str,
    pub(crate) route: String,
    pub(crate) salt: u64,
    pub(crate) rule: StopRule,
    /// Policies and shares: the control first, then the canaries.
    pub(crate) arms: Vec<(&'a PolicyVersions, u32)>,
    pub(crate) held: Arc<dyn HeldRequests>,
}

impl Trial {
    /// Returns the experiment that follows `before` and its policies.
    ///
    /// The result is the same one if nothing changed. In a new one a canary stays stopped if its share and
    /// version are unchanged.
    pub(crate) fn next(
        parts: TrialParts<'_>,
        before: Option<(&Arc<Self>, &[&PolicyVersions])>,
        metrics: &ArmFamilies,
    ) -> Arc<Self> {
        let kept = |(policy, share): &(&PolicyVersions, u32)| {
            let (trial, policies) = before?;
            let at = policies
                .iter()
                .position(|known| known.active().is_same(policy.active()))?;
            let arm = trial.arms.get(at)?;
            (arm.share == *share && *arm.policy == *policy.name()).then_some((at, arm))
        };
        if let Some((trial, _)) = before {
            let mut arms = parts.arms.iter().enumerate();
            let same = arms.all(|(at, arm)| kept(arm).is_some_and(|(kept, _)| kept == at));
            if same && trial.arms.len() == parts.arms.len() && trial.rule == parts.rule {
                return Arc::clone(trial);
            }
        }
        let arms = parts.arms.iter().enumerate().map(|(at, arm)| {
            let (policy, share) = arm;
            let label = ArmLabel {
                pool: parts.pool.to_owned(),
                route: parts.route.clone(),
                policy: policy.name().to_owned(),
            };
            // The control never stops: the sessions of stopped canaries fall back to it.
            let kept = kept(arm).filter(|_| at > 0);
            let stop_state = kept.map(|(_, arm)| Arc::clone(&arm.stop_state));
            Arm {
                policy: policy.name().into(),
                version: Arc::clone(&policy.active().id),
                share: *share,
                stop_state: stop_state.unwrap_or_default(),
                metrics: metrics.arm(&label),
            }
        });
        let arms: Box<[Arm]> = arms.collect();
        Arc::new(Self {
            pool: parts.pool.to_owned(),
            evidence: Mutex::new(Evidence::new(parts.rule, arms.len())),
            route: parts.route,
            rule: parts.rule,
            salt: parts.salt,
            arms,
            since: SystemTime::now(),
            held: parts.held,
        })
    }

    /// Assigns a request to an arm by its session, or without one by its seed. A stopped canary's requests go to the
    /// control.
    pub(crate) fn assign(&self, session: Option<u64>, seed: u64) -> Assignment {
        let shares = self.arms.iter().skip(1).map(|arm| arm.share);
        let mut assignment = assign(session.unwrap_or(seed), self.salt, shares);
        if self.is_stopped(assignment.arm) {
            assignment.arm = 0;
        }
        assignment
    }

    /// Returns `true` for a stopped canary.
    pub(crate) fn is_stopped(&self, arm: usize) -> bool {
        self.arms.get(arm).is_some_and(Arm::is_stopped)
    }

    /// Records the result of a request. `first_token` is in seconds.
    pub(crate) fn ended(
        &self,
        assignment: Assignment,
        outcome: Outcome,
        first_token: Option<f64>,
        result: &RequestResult,
    ) {
        let Assignment { arm, group } = assignment;
        self.arms[arm].metrics.ended(outcome, first_token, result);
        let worse = self.evidence().add(arm, group, result);
        if self.rule.stop {
            for worse in worse {
                self.stop(worse);
            }
        }
    }

    fn stop(&self, worse: WorseArm) {
        let arm = &self.arms[worse.arm];
        let stop = Stop {
            cause: Some(worse.cause),
            by: None,
            at: SystemTime::now(),
        };
        if !self.stop_arm(arm, stop) {
            return;
        }
        arm.stop_state.is_news.store(true, Ordering::Relaxed);
        let (policy, version) = (&*arm.policy, &*arm.version);
        let (pool, route) = (&*self.pool, &*self.route);
        match worse.cause {
            StopCause::ConsecutiveFailures {
                failures,
                control,
                control_failed,
            } => warn!(
                policy,
                version,
                pool,
                route,
                failures,
                control_samples = control,
                control_failed,
                "canary stopped: its requests fail in a row, and the results of its control meanwhile rule out chance; the \
                 control takes over its share until its version or share changes, or it is resumed"
            ),
            StopCause::Compared(measure, look) => warn!(
                policy,
                version,
                pool,
                route,
                measure = measure.as_str(),
                by = look.estimate,
                by_at_least = look.low,
                margin = self.margin(measure),
                confidence = self.rule.confidence,
                samples = look.samples,
                control_samples = look.control_samples,
                "canary stopped: it is worse than its control; the control takes over its share until its version or share \
                 changes, or it is resumed"
            ),
        }
    }

    /// Stops an arm, and frees the requests that it holds. Returns `false` if it is stopped already.
    fn stop_arm(&self, arm: &Arm, stop: Stop) -> bool {
        let is_first = !arm.stop_state.is_stopped.swap(true, Ordering::SeqCst);
        if is_first {
            *arm.stop() = Some(stop);
            Arc::clone(&self.held).decide_again();
        }
        is_first
    }

    /// Returns the margin of a measure.
    pub(super) fn margin(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Ttft => self.rule.ttft_margin,
            Measure::Errors => self.rule.error_margin,
        }
    }

    /// Resumes the stopped canaries of that name, and discards the evidence. Returns their number.
    pub(crate) fn resume(&self, policy: &str) -> usize {
        let stopped = self.arms.iter().skip(1).filter(|arm| *arm.policy == *policy);
        let mut resumed = 0;
        for arm in stopped.filter(|arm| arm.is_stopped()) {
            arm.resume();
            arm.stop_state.is_news.store(true, Ordering::Relaxed);
            resumed += 1;
            info!(policy, pool = self.pool, route = self.route, "canary resumed");
        }
        if resumed > 0 {
            self.forget_evidence();
        }
        resumed
    }

    fn forget_evidence(&self) {
        *self.evidence() = Evidence::new(self.rule, self.arms.len());
    }

    /// Locks the evidence, for microseconds per request or report.
    pub(super) fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arm {
    fn resume(&self) {
        *self.stop() = None;
        self.stop_state.is_stopped.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop_state.is_stopped.load(Ordering::SeqCst)
    }

    pub(super) fn stop(&self) -> MutexGuard<'_, Option<Stop>> {
        self.stop_state
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub use self::shared::{SharedArm, TrialShare};

#[cfg(test)]
mod tests;
