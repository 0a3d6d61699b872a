//! Health state machine of one worker, without a clock: time is passed in, in milliseconds.
//!
//! A worker is *pending* until it was reached once: by a good probe or by a request that it answered. No other state
//! leads back there.
//!
//! A worker is ejected once requests fail on it. When the ejection is over, one trial request is sent (half-open)
//! while the others still avoid the worker. If the trial succeeds, the worker returns. If it fails, the next rest
//! begins, twice as long.
//!
//! A worker that returned gets a rising share of the requests (slow start). Until that is over, a failure continues the
//! backoff of the last rest. Probes count separately: only probes return a worker to service that probes took out.

mod report;
mod window;

pub(crate) use self::report::{LONGEST_REASON, StateReport};
use self::window::{OutcomeWindow, millis};
use super::spec::HealthSpec;
use crate::base::label::EjectionCause;

/// Smallest share of requests that a returned worker gets (start of the slow start).
const FIRST_SHARE: f64 = 0.1;
/// Longest time for which a worker's own request for a pause is honoured.
const LONGEST_PAUSE_MS: u64 = 60_000;

/// Meaning of a request for the health of its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptToken {
    /// Ordinary traffic.
    Plain,
    /// Trial request, which finds out whether the worker is back.
    Trial,
}

/// Health status of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthStatus {
    /// Never reached. The worker gets requests only where no worker in service is left.
    Pending,
    /// In service: the worker gets requests.
    Serving,
    /// In slow start: the worker gets a rising share of the requests.
    Returning,
    /// Ejected because requests failed on it.
    Ejected,
    /// Passed over for a while at the worker's own request.
    Busy,
    /// Out of service because its probes failed.
    Unhealthy,
}

impl HealthStatus {
    /// Returns `true` if the worker is out of service.
    pub(crate) fn is_out(self) -> bool {
        matches!(self, Self::Pending | Self::Ejected | Self::Busy | Self::Unhealthy)
    }
}

/// Result of a health probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The worker is healthy, or at least reachable.
    Well,
    /// The worker is unhealthy.
    Unwell,
    /// The probe found nothing out.
    Unclear,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthStage {
    /// Never reached.
    Pending,
    Serving,
    /// Ejected until that time. After that, only a trial is sent.
    Ejected {
        until_ms: u64,
        cause: EjectionCause,
    },
    Returning {
        since_ms: u64,
    },
}

/// State machine of one worker's health.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rules: HealthSpec,
    stage: HealthStage,
    /// Consecutive failures to answer.
    failures: u32,
    /// Consecutive answers of 500 or more.
    server_errors: u32,
    /// Ejections since the worker last returned for good.
    ejections: u32,
    window: OutcomeWindow,
    /// End of the pause that the worker requested, 0 where it requested none.
    pause_until_ms: u64,
    probes: Probes,
    /// Times and errors for the reports.
    history: History,
}

/// Beginnings of the present states, and the last failure.
#[derive(Debug, Default)]
struct History {
    /// Start of the stage. A further rest of the same outage keeps the first one's start.
    stage_ms: u64,
    /// Time of the worker's last request for a pause.
    paused_ms: u64,
    /// Time when the probes took the worker out of service.
    against_ms: u64,
    /// Last failure, while anything counts against the worker.
    trouble: Option<Box<str>>,
}

#[derive(Debug, Default)]
struct Probes {
    /// Consecutive failed probes.
    failed: u32,
    /// Consecutive passed probes.
    passed: u32,
    /// `true` while probes have taken the worker out of service.
    are_against: bool,
}

impl State {
    pub(super) fn new(rules: HealthSpec) -> Self {
        Self {
            rules,
            stage: HealthStage::Pending,
            failures: 0,
            server_errors: 0,
            ejections: 0,
            window: OutcomeWindow::default(),
            pause_until_ms: 0,
            probes: Probes::default(),
            history: History::default(),
        }
    }

    /// Returns `true` if the worker was never reached.
    pub(super) fn is_pending(&self) -> bool {
        self.stage == HealthStage::Pending
    }

    /// Puts a pending worker into service, because it was reached for the first time. Earlier results of probes no
    /// longer count.
    pub(super) fn reached(&mut self, now_ms: u64) {
        if self.stage == HealthStage::Pending {
            self.stage = HealthStage::Serving;
            self.failures = 0;
            self.probes = Probes::default();
            self.history = History {
                stage_ms: now_ms,
                ..History::default()
            };
        }
    }

    /// Stores the text of a failure, for the reports.
    pub(super) fn note(&mut self, trouble: Box<str>) {
        self.history.trouble = Some(trouble);
    }

    /// Sets other rules from now on. Results of probes are forgotten where there are no probes any more.
    pub(super) fn set_rules(&mut self, rules: &HealthSpec) {
        if rules.probe.is_none() {
            self.probes = Probes::default();
        }
        if self.rules != *rules {
            self.rules = rules.clone();
        }
    }

    /// Returns `true` if nothing at all counts against the worker.
    pub(super) fn is_plain(&self) -> bool {
        self.stage == HealthStage::Serving
            && self.failures == 0
            && self.server_errors == 0
            && self.pause_until_ms == 0
            && !self.probes.are_against
    }

    /// Returns the number of consecutive failures to answer. The number is at least one while a trial request is under
    /// way.
    pub(super) fn failures(&self) -> u32 {
        let is_ejected = matches!(self.stage, HealthStage::Ejected { .. });
        self.failures.max(u32::from(is_ejected))
    }

    /// Returns the present health status.
    pub(super) fn status(&mut self, now_ms: u64) -> HealthStatus {
        self.settle(now_ms);
        if self.probes.are_against {
            return HealthStatus::Unhealthy;
        }
        match self.stage {
            HealthStage::Pending => HealthStatus::Pending,
            HealthStage::Ejected { until_ms, .. } if until_ms > now_ms => HealthStatus::Ejected,
            _ if self.pause_until_ms > now_ms => HealthStatus::Busy,
            HealthStage::Returning { .. } => HealthStatus::Returning,
            HealthStage::Serving | HealthStage::Ejected { .. } => HealthStatus::Serving,
        }
    }

    /// Returns `true` if slow start admits the request of that number. Outside of slow start every request is admitted.
    pub(super) fn admits(&mut self, seq: u64, now_ms: u64) -> bool {
        self.settle(now_ms);
        let HealthStage::Returning { since_ms } = self.stage else {
            return true;
        };
        let done = now_ms.saturating_sub(since_ms) as f64 / millis(self.rules.slow_start).max(1) as f64;
        spread(seq) < done.max(FIRST_SHARE)
    }

    /// Records that a request is about to be sent.
    pub(super) fn begin(&mut self, now_ms: u64) -> AttemptToken {
        match self.stage {
            HealthStage::Ejected { until_ms, cause } if until_ms <= now_ms => {
                // If the trial hangs, another may follow after the same time.
                let until_ms = now_ms.saturating_add(self.ejection_ms());
                self.stage = HealthStage::Ejected { until_ms, cause };
                AttemptToken::Trial
            }
            _ => AttemptToken::Plain,
        }
    }

    /// Records a good answer to a request.
    pub(super) fn answered(&mut self, dispatch: AttemptToken, now_ms: u64) {
        self.failures = 0;
        self.server_errors = 0;
        match self.stage {
            HealthStage::Pending => self.reached(now_ms),
            // Requests that were under way prove nothing where many of the worker's answers are bad.
            HealthStage::Ejected { cause, .. }
                if cause == EjectionCause::Failures || dispatch == AttemptToken::Trial =>
            {
                self.come_back(now_ms);
            }
            _ => self.settle(now_ms),
        }
    }

    /// Records a failure to answer. `answers` is the number of good ones so far. Returns the cause if an ejection
    /// begins now.
    pub(super) fn failed(
        &mut self,
        dispatch: AttemptToken,
        now_ms: u64,
        answers: u64,
    ) -> Option<EjectionCause> {
        if self.is_of_the_last_outage(dispatch, now_ms) {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        if self.is_pending() {
            return None;
        }
        self.window.failed(&self.rules, now_ms, answers);
        if dispatch == AttemptToken::Trial || self.failures >= self.rules.failures.max(1) {
            return Some(self.eject_for(EjectionCause::Failures, now_ms));
        }
        None
    }

    /// Records an answer with a status of 500 or more. Returns the cause if an ejection begins now.
    pub(super) fn server_error(
        &mut self,
        dispatch: AttemptToken,
        now_ms: u64,
        answers: u64,
    ) -> Option<EjectionCause> {
        self.failures = 0;
        if self.is_pending() {
            return None;
        }
        if let HealthStage::Ejected { cause, .. } = self.stage {
            if cause == EjectionCause::Failures {
                // An error status is an answer: the worker is reachable.
                self.come_back(now_ms);
            } else if dispatch == AttemptToken::Trial {
                return Some(self.eject_for(cause, now_ms));
            } else {
                return None;
            }
        }
        self.settle(now_ms);
        self.server_errors = self.server_errors.saturating_add(1);
        self.window.failed(&self.rules, now_ms, answers);
        None
    }

    /// Returns the cause for an ejection because of its answers. The pool decides whether too many others are out.
    pub(super) fn ejection_cause(&self, answers: u64) -> Option<EjectionCause> {
        let in_a_row = self.rules.server_errors > 0 && self.server_errors >= self.rules.server_errors;
        let is_bad = || self.window.is_bad(&self.rules, answers);
        match in_a_row {
            true => Some(EjectionCause::ServerErrors),
            false => is_bad().then_some(EjectionCause::Share),
        }
    }

    /// Ejects the worker if its answers still justify it. Returns the cause.
    pub(super) fn eject(&mut self, now_ms: u64, answers: u64) -> Option<EjectionCause> {
        self.ejection_cause(answers)
            .map(|cause| self.eject_for(cause, now_ms))
    }

    /// Records the worker's request for a pause, which is honoured up to a minute.
    pub(super) fn passed_over(&mut self, after_ms: u64, now_ms: u64) {
        if self.pause_until_ms <= now_ms {
            self.history.paused_ms = now_ms;
        }
        let until_ms = now_ms.saturating_add(after_ms.min(LONGEST_PAUSE_MS));
        self.pause_until_ms = self.pause_until_ms.max(until_ms);
    }

    /// Records the result of a probe. Returns the cause if that takes the worker out of service.
    pub(super) fn probed(&mut self, finding: Finding, now_ms: u64) -> Option<EjectionCause> {
        if self.is_pending() {
            match finding {
                Finding::Well => self.reached(now_ms),
                Finding::Unwell => self.probes.failed = self.probes.failed.saturating_add(1),
                Finding::Unclear => {}
            }
            return None;
        }
        let probe = self.rules.probe.as_ref()?;
        let probes = &mut self.probes;
        match finding {
            Finding::Unclear => None,
            Finding::Well => {
                probes.failed = 0;
                probes.passed = probes.passed.saturating_add(1);
                if probes.are_against && probes.passed >= probe.healthy_after {
                    probes.are_against = false;
                    if self.stage == HealthStage::Serving {
                        self.come_back(now_ms);
                    }
                }
                None
            }
            Finding::Unwell => {
                probes.passed = 0;
                probes.failed = probes.failed.saturating_add(1);
                let is_new = !probes.are_against && probes.failed >= probe.unhealthy_after;
                probes.are_against |= is_new;
                if is_new {
                    self.history.against_ms = now_ms;
                }
                is_new.then_some(EjectionCause::Probe)
            }
        }
    }

    /// Returns `true` for a request that was under way at the last failure. All these count as one failure.
    fn is_of_the_last_outage(&self, dispatch: AttemptToken, now_ms: u64) -> bool {
        let is_ejected = matches!(self.stage, HealthStage::Ejected { until_ms, .. } if until_ms > now_ms);
        is_ejected && dispatch == AttemptToken::Plain
    }

    fn eject_for(&mut self, cause: EjectionCause, now_ms: u64) -> EjectionCause {
        self.settle(now_ms);
        if !matches!(self.stage, HealthStage::Ejected { .. }) {
            self.history.stage_ms = now_ms;
        }
        self.ejections = self.ejections.saturating_add(1);
        let until_ms = now_ms.saturating_add(self.ejection_ms());
        self.stage = HealthStage::Ejected { until_ms, cause };
        self.window = OutcomeWindow::default();
        self.server_errors = 0;
        cause
    }

    /// Returns the length of the present ejection.
    fn ejection_ms(&self) -> u64 {
        let doublings = self.ejections.saturating_sub(1).min(32);
        let longest = millis(self.rules.max_ejection_time).max(1);
        millis(self.rules.base_ejection_time)
            .max(1)
            .saturating_mul(1 << doublings)
            .min(longest)
    }

    fn come_back(&mut self, now_ms: u64) {
        self.stage = HealthStage::Returning { since_ms: now_ms };
        self.history.stage_ms = now_ms;
        self.settle(now_ms);
    }

    /// Ends the states that time alone ends.
    fn settle(&mut self, now_ms: u64) {
        if let HealthStage::Returning { since_ms } = self.stage
            && now_ms.saturating_sub(since_ms) >= millis(self.rules.slow_start)
        {
            self.stage = HealthStage::Serving;
            self.ejections = 0;
            self.history.stage_ms = since_ms.saturating_add(millis(self.rules.slow_start));
            self.history.trouble = None;
        }
        if self.pause_until_ms <= now_ms {
            self.pause_until_ms = 0;
        }
    }
}

/// Returns an evenly spread number from 0 up to 1 for each of a row of numbers: the golden ratio's multiples.
fn spread(seq: u64) -> f64 {
    (seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
}
