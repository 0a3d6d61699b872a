//! Trials as they are at one moment, for whoever shows them.

use std::sync::Arc;
use std::time::SystemTime;

use crate::arm::evidence::{Cause, Finding, Look, Measure, Shortage, SideReport, StopRule};
use crate::arm::trial::{Arm, BUCKETS, Stop, Trial};
use crate::route::Route;
use crate::shadow::ShadowReport;
use crate::snapshot::Snapshot;

/// A route that splits its requests.
#[derive(Debug, Clone)]
pub struct TrialReport {
    /// The route's pool.
    pub pool: String,
    /// What the route takes.
    pub route: String,
    /// When a canary is worse.
    pub rule: StopRule,
    /// Since when the arms are compared.
    pub since: SystemTime,
    /// The control first.
    pub arms: Vec<ArmReport>,
}

/// One arm.
#[derive(Debug, Clone)]
pub struct ArmReport {
    /// The policy's name in the configuration.
    pub policy: String,
    /// The version in force when the comparison began.
    pub version: Arc<str>,
    /// Its share of the sessions as configured, up to 1.
    pub share: f64,
    /// Whether the others are compared with it.
    pub is_control: bool,
    /// What became of its requests.
    pub side: SideReport,
    /// What is said of a canary.
    pub finding: Finding,
    /// The newest look at its times to first token.
    pub ttft: Option<Look>,
    /// The newest look at its share of failed requests.
    pub errors: Option<Look>,
    /// What its comparisons wait for, where there was no look yet.
    pub shortages: Vec<Shortage>,
    /// Whether it is stopped, and why.
    pub stopped: Option<StopReport>,
}

/// Why a canary was stopped.
#[derive(Debug, Clone, Copy)]
pub struct StopReport {
    /// What was worse, and by how much.
    pub cause: Cause,
    /// The margin that a comparison was over.
    pub margin: Option<f64>,
    /// When.
    pub at: SystemTime,
}

impl Snapshot {
    /// The routes that split their requests, as they are now.
    #[must_use]
    pub fn trials(&self) -> Vec<TrialReport> {
        let trials = self.routes.iter().filter_map(Route::trial);
        trials.map(|trial| trial.report()).collect()
    }

    /// The policies that are only asked, as they are now.
    #[must_use]
    pub fn shadows(&self) -> Vec<ShadowReport> {
        let shadows = self.routes.iter().filter_map(|route| route.shadows.as_ref());
        shadows.flat_map(|shadows| shadows.report()).collect()
    }

    /// Gives the stopped canaries of that name their share again, on every route. How many there were.
    #[must_use]
    pub fn resume_canaries(&self, policy: &str) -> usize {
        let trials = self.routes.iter().filter_map(Route::trial);
        trials.map(|trial| trial.resume(policy)).sum()
    }
}

impl Trial {
    pub(crate) fn report(&self) -> TrialReport {
        TrialReport {
            pool: self.pool.clone(),
            route: self.route.clone(),
            rule: self.rule,
            since: self.since,
            arms: self
                .arms
                .iter()
                .enumerate()
                .map(|(at, arm)| self.arm(at, arm))
                .collect(),
        }
    }

    fn arm(&self, at: usize, arm: &Arm) -> ArmReport {
        let evidence = self.evidence();
        let look = |measure| evidence.last(at, measure);
        let found = |look: Option<Look>| look.map_or(Finding::TooFew, |look| look.finding);
        let (ttft, errors) = (look(Measure::Ttft), look(Measure::Errors));
        let stop = *arm.stop();
        ArmReport {
            policy: arm.policy.to_string(),
            version: Arc::clone(&arm.version),
            share: f64::from(arm.share) / f64::from(BUCKETS),
            is_control: at == 0,
            side: evidence.report(at),
            finding: if stop.is_some() || evidence.fails(at).is_some() {
                Finding::Worse
            } else {
                Finding::of(found(ttft), found(errors))
            },
            shortages: evidence.shortages(at),
            ttft,
            errors,
            stopped: stop.map(|Stop { worse, at }| StopReport {
                cause: worse.cause,
                margin: match worse.cause {
                    Cause::ConsecutiveFailures(_) => None,
                    Cause::Compared(measure, _) => Some(self.margin(measure)),
                },
                at,
            }),
        }
    }
}
