//! Reports of experiments.

use std::sync::Arc;

use experiment::{ARM_SHARES, ArmReport, CanaryVerdict, Measure, StopCause, StopReport, TrialReport};

use super::trial::{Arm, Stop, Trial};

impl Trial {
    /// Returns the report of the experiment, of the route with this number. The number may change over reloads.
    pub(crate) fn report(&self, number: usize) -> TrialReport {
        TrialReport {
            number,
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
        let (ttft, errors) = (look(Measure::Ttft), look(Measure::Errors));
        let stop = arm.stop().clone();
        ArmReport {
            policy: arm.policy.to_string(),
            version: Arc::clone(&arm.version),
            share: f64::from(arm.share) / f64::from(ARM_SHARES),
            is_control: at == 0,
            side: evidence.summary(at),
            verdict: match stop {
                Some(_) => CanaryVerdict::Worse,
                None => evidence.verdict(at),
            },
            shortages: evidence.shortages(at),
            ttft,
            errors,
            stopped: stop.map(|Stop { cause, by, at }| StopReport {
                cause,
                margin: match cause {
                    None | Some(StopCause::ConsecutiveFailures { .. }) => None,
                    Some(StopCause::Compared(measure, _)) => Some(self.margin(measure)),
                },
                by,
                at,
            }),
        }
    }
}
