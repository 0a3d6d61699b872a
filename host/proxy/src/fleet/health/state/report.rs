//! Health report of a worker: the reason for its state, since when, and what ends it.

use super::window::millis;
use super::{HealthStage, HealthStatus, State};
use crate::base::label::EjectionCause;

/// Longest text of a failure that is kept, in bytes.
pub(crate) const LONGEST_REASON: usize = 256;

/// A worker's state at one moment, on the clock of its health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateReport {
    pub(crate) status: HealthStatus,
    /// Beginning of the state.
    pub(crate) since_ms: u64,
    /// Time when the state ends without a check, or is tried again. `None` where only a check or a request ends it.
    pub(crate) next_ms: Option<u64>,
    /// Reason for the state. `None` while nothing counts against the worker.
    pub(crate) reason: Option<String>,
    /// `true` once a check or a request has had a result.
    pub(crate) is_checked: bool,
}

impl State {
    /// Returns the state, its beginning and its reason.
    pub(in crate::fleet::health) fn report(&mut self, now_ms: u64) -> StateReport {
        let status = self.status(now_ms);
        let (since_ms, next_ms) = match status {
            HealthStatus::Unhealthy => (self.history.against_ms, None),
            HealthStatus::Busy => (self.history.paused_ms, Some(self.pause_until_ms)),
            HealthStatus::Returning => {
                let full_ms = self
                    .history
                    .stage_ms
                    .saturating_add(millis(self.rules.slow_start));
                (self.history.stage_ms, Some(full_ms))
            }
            HealthStatus::Pending | HealthStatus::Ejected | HealthStatus::Serving => {
                let until = match self.stage {
                    HealthStage::Ejected { until_ms, .. } => Some(until_ms),
                    _ => None,
                };
                (self.history.stage_ms, until)
            }
        };
        StateReport {
            status,
            since_ms,
            next_ms,
            reason: self.reason(status),
            is_checked: !self.is_pending() || self.probes.failed > 0 || self.history.trouble.is_some(),
        }
    }

    fn reason(&self, status: HealthStatus) -> Option<String> {
        let last = self.history.trouble.as_deref();
        let with_last = |text: String| match last {
            Some(last) => format!("{text}; the last failure: {last}"),
            None => text,
        };
        Some(match status {
            HealthStatus::Pending if last.is_none() => {
                "not reached yet: the first check has no result".to_owned()
            }
            HealthStatus::Pending => with_last("never reached".to_owned()),
            HealthStatus::Unhealthy => {
                with_last(format!("{} health probes failed in a row", self.probes.failed))
            }
            HealthStatus::Busy => with_last("it answered with Retry-After".to_owned()),
            HealthStatus::Ejected => with_last(self.cause()),
            HealthStatus::Returning => {
                with_last("it is back and is offered a rising share of requests".to_owned())
            }
            HealthStatus::Serving => match self.stage {
                HealthStage::Ejected { .. } => with_last(format!(
                    "{}; the ejection time is over and the next request tries it",
                    self.cause()
                )),
                _ if self.failures > 0 || self.server_errors > 0 => {
                    with_last("in service, with failures".to_owned())
                }
                _ => return None,
            },
        })
    }

    /// Returns the cause that took the worker out of service.
    fn cause(&self) -> String {
        let HealthStage::Ejected { cause, .. } = self.stage else {
            return String::new();
        };
        match cause {
            EjectionCause::Failures => match self.failures {
                0 | 1 => "a request got no answer".to_owned(),
                failures => format!("{failures} requests in a row got no answer"),
            },
            EjectionCause::ServerErrors => format!(
                "{} answers in a row had a status of 500 or more",
                self.rules.server_errors
            ),
            EjectionCause::Share => format!(
                "at least {:.0} % of its requests failed within {:?}",
                self.rules.failure_share * 100.0,
                self.rules.failure_window
            ),
            // Probes do not make a worker rest.
            EjectionCause::Probe => "its health probes failed".to_owned(),
        }
    }
}
