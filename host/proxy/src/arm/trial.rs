//! Which arm of a route decides a request, and what is done about a canary that is worse.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use routing::PolicyVersions;
use tracing::{info, warn};

use crate::arm::evidence::{Cause, Ended, Evidence, Measure, StopRule, Worse};
use crate::arm::metrics::{ArmFamilies, ArmLabel, ArmMetrics};
use crate::label::Outcome;
use crate::mix::mix;

/// What shares are counted in: a bucket is a hundredth of a percent.
pub(crate) const BUCKETS: u32 = 10_000;

/// The arms of one route. They outlive a snapshot while none of them changes; answers under way keep them as long as they
/// last, so that they hold no policy.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(super) pool: String,
    /// What the route takes, for people.
    pub(super) route: String,
    pub(super) rule: StopRule,
    /// Tells the sessions of this route apart from those of others: the same client is not always first to try.
    salt: u64,
    /// The control is the first.
    pub(super) arms: Box<[Arm]>,
    pub(super) since: SystemTime,
    evidence: Mutex<Evidence>,
}

/// One policy of a trial.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) policy: Box<str>,
    pub(super) version: Arc<str>,
    /// Buckets.
    pub(super) share: u32,
    halt: Arc<Halt>,
    metrics: ArmMetrics,
}

/// Whether a canary is stopped, and why. Shared by every trial that its version is in with the same share, since what stops it may
/// be a request that began before a reload.
#[derive(Debug, Default)]
struct Halt {
    is_stopped: AtomicBool,
    stop: Mutex<Option<Stop>>,
}

/// Why and when a canary was stopped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    pub(super) worse: Worse,
    pub(super) at: SystemTime,
}

/// Where a request is in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The control is 0.
    pub(crate) arm: usize,
    /// Its group of sessions.
    pub(crate) group: u8,
}

/// What a trial is made of.
pub(crate) struct TrialParts<'a> {
    pub(crate) pool: &'a str,
    pub(crate) route: String,
    pub(crate) salt: u64,
    pub(crate) rule: StopRule,
    /// The control first, then the canaries.
    pub(crate) arms: Vec<(&'a PolicyVersions, u32)>,
}

impl Trial {
    /// The trial that follows `before`, which had those policies: the same one where nothing of it changed, else a new one in
    /// which a canary stays stopped unless its share or its version is another.
    pub(crate) fn next(
        parts: TrialParts<'_>,
        before: Option<(&Arc<Self>, &[&PolicyVersions])>,
        metrics: &ArmFamilies,
    ) -> Arc<Self> {
        let kept = |(policy, share): &(&PolicyVersions, u32)| {
            let (trial, policies) = before?;
            let at = policies.iter().position(|known| is_same(known, policy))?;
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
            // The control is what a stopped canary's sessions fall back to.
            let kept = kept(arm).filter(|_| at > 0);
            let halt = kept.map(|(_, arm)| Arc::clone(&arm.halt));
            Arm {
                policy: policy.name().into(),
                version: Arc::clone(&policy.in_force().id),
                share: *share,
                halt: halt.unwrap_or_default(),
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
        })
    }

    /// Where a request is: by its session, or without one by its seed. The canaries have the buckets from 0 up, in their
    /// order, and the control what is left, so that raising the last one's share only moves sessions into it.
    pub(crate) fn place(&self, session: Option<u64>, seed: u64) -> Place {
        let mixed = mix(session.unwrap_or(seed) ^ self.salt);
        let group = (mixed % 64) as u8;
        let bucket = ((mixed >> 32) * u64::from(BUCKETS)) >> 32;
        let mut end = 0;
        let canary = self.arms.iter().skip(1).position(|arm| {
            end += u64::from(arm.share);
            bucket < end
        });
        let arm = canary.map_or(0, |canary| canary + 1);
        let arm = if self.arms[arm].is_stopped() { 0 } else { arm };
        Place { arm, group }
    }

    /// A request is over; `first_token` is in seconds, where it came.
    pub(crate) fn ended(&self, place: Place, outcome: Outcome, first_token: Option<f64>, ended: &Ended) {
        self.arms[place.arm].metrics.ended(outcome, first_token, ended);
        let worse = self.evidence().add(place.arm, place.group, ended);
        if self.rule.stop {
            for worse in worse {
                self.stop(worse);
            }
        }
    }

    fn stop(&self, worse: Worse) {
        let arm = &self.arms[worse.arm];
        if arm.halt.is_stopped.swap(true, Ordering::Relaxed) {
            return;
        }
        let at = SystemTime::now();
        *arm.stop() = Some(Stop { worse, at });
        let (policy, version) = (&*arm.policy, &*arm.version);
        let (pool, route) = (&*self.pool, &*self.route);
        match worse.cause {
            Cause::ConsecutiveFailures(failures) => warn!(
                policy,
                version,
                pool,
                route,
                failures,
                "a canary is stopped: so many of its requests in a row failed, and the newest one of its control did not; the \
                 control has its share until its version or its share changes, or it is resumed"
            ),
            Cause::Compared(measure, look) => warn!(
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
                "a canary is worse than its control and is stopped: the control has its share until its version or its share \
                 changes, or it is resumed"
            ),
        }
    }

    pub(super) fn margin(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Ttft => self.rule.ttft_margin,
            Measure::Errors => self.rule.error_margin,
        }
    }

    /// Gives the stopped canaries of that name their share again, and forgets what was known. How many there were.
    pub(crate) fn resume(&self, policy: &str) -> usize {
        let stopped = self.arms.iter().skip(1).filter(|arm| *arm.policy == *policy);
        let mut resumed = 0;
        for arm in stopped.filter(|arm| arm.is_stopped()) {
            *arm.stop() = None;
            arm.halt.is_stopped.store(false, Ordering::Relaxed);
            resumed += 1;
            info!(
                policy,
                pool = self.pool,
                route = self.route,
                "a canary is resumed"
            );
        }
        if resumed > 0 {
            *self.evidence() = Evidence::new(self.rule, self.arms.len());
        }
        resumed
    }

    /// One request's end or a page at a time uses it, for microseconds.
    pub(super) fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arm {
    pub(super) fn is_stopped(&self) -> bool {
        self.halt.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) -> MutexGuard<'_, Option<Stop>> {
        self.halt.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the version in force is the same: same bytes, same parameters.
fn is_same(one: &PolicyVersions, other: &PolicyVersions) -> bool {
    Arc::ptr_eq(&one.in_force().policy, &other.in_force().policy)
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
