//! What is known of one worker's health, as a machine without a clock: time is passed in, in milliseconds.
//!
//! A worker is *pending* until it was reached once: by a good probe or by a request that it answered. No other state leads back
//! there.
//!
//! A worker *rests* once requests fail on it. When the rest is over one request tries it (half-open) while the others still
//! keep away: its success brings the worker back, its failure starts the next rest, twice as long. A worker that came back is
//! offered a rising share of the requests (slow start), and until that is over, a failure goes on where the last rest was.
//! Probes count for themselves: what they take out of service only they bring back.

mod report;
mod window;

use std::time::Duration;

pub(crate) use self::report::{LONGEST_REASON, StateReport};
use self::window::Window;
use super::spec::HealthSpec;
use crate::base::label::EjectionCause;

/// The smallest share of requests a worker is offered that came back.
const FIRST_SHARE: f64 = 0.1;
/// The longest time a worker is passed over because it asked for it.
const LONGEST_TOLD_MS: u64 = 60_000;

/// What a request is to a worker it is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptToken {
    /// Ordinary traffic.
    Plain,
    /// The one request that finds out whether the worker is back.
    Trial,
}

/// Where a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthStatus {
    /// It was never reached, and takes requests only where no worker in service is left.
    Pending,
    /// It takes requests.
    Serving,
    /// It takes a rising share of them.
    Returning,
    /// It failed requests, and is kept away from.
    Resting,
    /// It asked to be passed over for a while.
    Busy,
    /// Its probes say that it is not well.
    Unhealthy,
}

impl HealthStatus {
    /// Whether to keep away.
    pub(crate) fn is_out(self) -> bool {
        matches!(self, Self::Pending | Self::Resting | Self::Busy | Self::Unhealthy)
    }
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It is well, or at least there.
    Well,
    /// It is not.
    Unwell,
    /// Nothing was found out.
    Unclear,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Never reached.
    Pending,
    Serving,
    /// Kept away from until then, and but for a trial from then on.
    Resting {
        until_ms: u64,
        cause: EjectionCause,
    },
    Returning {
        since_ms: u64,
    },
}

/// The machine.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rules: HealthSpec,
    stage: Stage,
    /// Failures to answer in a row.
    failures: u32,
    /// Answers of 500 or more in a row.
    server_errors: u32,
    /// Rests since it last came back for good.
    rests: u32,
    window: Window,
    /// It asked to be passed over until then; 0 where it did not.
    told_until_ms: u64,
    probes: Probes,
    /// For the reports.
    history: History,
}

/// When the present states began, and what went wrong last.
#[derive(Debug, Default)]
struct History {
    /// Start of the stage; a further rest of the same outage goes on with the first one's.
    stage_ms: u64,
    /// When it last asked to be passed over.
    told_ms: u64,
    /// When its probes took it out of service.
    against_ms: u64,
    /// The last failure while anything speaks against it.
    trouble: Option<Box<str>>,
}

#[derive(Debug, Default)]
struct Probes {
    /// In a row.
    failed: u32,
    /// In a row.
    passed: u32,
    /// They have taken it out of service.
    are_against: bool,
}

impl State {
    pub(super) fn new(rules: HealthSpec) -> Self {
        Self {
            rules,
            stage: Stage::Pending,
            failures: 0,
            server_errors: 0,
            rests: 0,
            window: Window::default(),
            told_until_ms: 0,
            probes: Probes::default(),
            history: History::default(),
        }
    }

    /// Whether it was never reached.
    pub(super) fn is_pending(&self) -> bool {
        self.stage == Stage::Pending
    }

    /// It was reached for the first time, if it was pending: it is in service from now on. What probes found before counts no more.
    pub(super) fn reached(&mut self, now_ms: u64) {
        if self.stage == Stage::Pending {
            self.stage = Stage::Serving;
            self.failures = 0;
            self.probes = Probes::default();
            self.history = History {
                stage_ms: now_ms,
                ..History::default()
            };
        }
    }

    /// Keeps the text of a failure, for the reports.
    pub(super) fn note(&mut self, trouble: Box<str>) {
        self.history.trouble = Some(trouble);
    }

    /// Other rules from now on. What probes found is forgotten where there are none any more.
    pub(super) fn set_rules(&mut self, rules: &HealthSpec) {
        if rules.probe.is_none() {
            self.probes = Probes::default();
        }
        if self.rules != *rules {
            self.rules = rules.clone();
        }
    }

    /// Whether nothing at all is to be heeded about it.
    pub(super) fn is_plain(&self) -> bool {
        self.stage == Stage::Serving
            && self.failures == 0
            && self.server_errors == 0
            && self.told_until_ms == 0
            && !self.probes.are_against
    }

    /// Failures to answer in a row; at least one while a trial is to tell.
    pub(super) fn failures(&self) -> u32 {
        let rests = matches!(self.stage, Stage::Resting { .. });
        self.failures.max(u32::from(rests))
    }

    /// Where it stands now.
    pub(super) fn stance(&mut self, now_ms: u64) -> HealthStatus {
        self.settle(now_ms);
        if self.probes.are_against {
            return HealthStatus::Unhealthy;
        }
        match self.stage {
            Stage::Pending => HealthStatus::Pending,
            Stage::Resting { until_ms, .. } if until_ms > now_ms => HealthStatus::Resting,
            _ if self.told_until_ms > now_ms => HealthStatus::Busy,
            Stage::Returning { .. } => HealthStatus::Returning,
            Stage::Serving | Stage::Resting { .. } => HealthStatus::Serving,
        }
    }

    /// Whether the request of that number may be offered it: always, unless it has just come back.
    pub(super) fn admits(&mut self, seq: u64, now_ms: u64) -> bool {
        self.settle(now_ms);
        let Stage::Returning { since_ms } = self.stage else {
            return true;
        };
        let done = now_ms.saturating_sub(since_ms) as f64 / millis(self.rules.slow_start).max(1) as f64;
        spread(seq) < done.max(FIRST_SHARE)
    }

    /// A request is about to be sent.
    pub(super) fn begin(&mut self, now_ms: u64) -> AttemptToken {
        match self.stage {
            Stage::Resting { until_ms, cause } if until_ms <= now_ms => {
                // Should the trial hang, another may follow after as long again.
                let until_ms = now_ms.saturating_add(self.rest_ms());
                self.stage = Stage::Resting { until_ms, cause };
                AttemptToken::Trial
            }
            _ => AttemptToken::Plain,
        }
    }

    /// A request was answered well.
    pub(super) fn answered(&mut self, dispatch: AttemptToken, now_ms: u64) {
        self.failures = 0;
        self.server_errors = 0;
        match self.stage {
            Stage::Pending => self.reached(now_ms),
            // What was under way says nothing of what is wrong with many of its answers.
            Stage::Resting { cause, .. }
                if cause == EjectionCause::Failures || dispatch == AttemptToken::Trial =>
            {
                self.come_back(now_ms);
            }
            _ => self.settle(now_ms),
        }
    }

    /// It failed to answer. `answers` are the good ones so far. Why it rests now, if it begins to.
    pub(super) fn failed(
        &mut self,
        dispatch: AttemptToken,
        (now_ms, answers): (u64, u64),
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
            return Some(self.rest(EjectionCause::Failures, now_ms));
        }
        None
    }

    /// It answered with a status of 500 or more. Why it rests now, if it begins to.
    pub(super) fn server_error(
        &mut self,
        dispatch: AttemptToken,
        (now_ms, answers): (u64, u64),
    ) -> Option<EjectionCause> {
        self.failures = 0;
        if self.is_pending() {
            return None;
        }
        if let Stage::Resting { cause, .. } = self.stage {
            if cause == EjectionCause::Failures {
                // It does answer.
                self.come_back(now_ms);
            } else if dispatch == AttemptToken::Trial {
                return Some(self.rest(cause, now_ms));
            } else {
                return None;
            }
        }
        self.settle(now_ms);
        self.server_errors = self.server_errors.saturating_add(1);
        self.window.failed(&self.rules, now_ms, answers);
        None
    }

    /// Why it is to rest for what it answered, unless too many others do.
    pub(super) fn deserves(&self, answers: u64) -> Option<EjectionCause> {
        let in_a_row = self.rules.server_errors > 0 && self.server_errors >= self.rules.server_errors;
        let is_bad = || self.window.is_bad(&self.rules, answers);
        match in_a_row {
            true => Some(EjectionCause::ServerErrors),
            false => is_bad().then_some(EjectionCause::Share),
        }
    }

    /// It rests for what it deserves to rest for, if it still does.
    pub(super) fn eject(&mut self, (now_ms, answers): (u64, u64)) -> Option<EjectionCause> {
        self.deserves(answers).map(|cause| self.rest(cause, now_ms))
    }

    /// It asked not to be asked for so long, which is heeded up to a minute.
    pub(super) fn passed_over(&mut self, after_ms: u64, now_ms: u64) {
        if self.told_until_ms <= now_ms {
            self.history.told_ms = now_ms;
        }
        let until_ms = now_ms.saturating_add(after_ms.min(LONGEST_TOLD_MS));
        self.told_until_ms = self.told_until_ms.max(until_ms);
    }

    /// A probe ended. Whether it is taken out of service by that.
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
                    if self.stage == Stage::Serving {
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

    /// The requests that were under way when it failed count as one failure.
    fn is_of_the_last_outage(&self, dispatch: AttemptToken, now_ms: u64) -> bool {
        let rests = matches!(self.stage, Stage::Resting { until_ms, .. } if until_ms > now_ms);
        rests && dispatch == AttemptToken::Plain
    }

    fn rest(&mut self, cause: EjectionCause, now_ms: u64) -> EjectionCause {
        self.settle(now_ms);
        if !matches!(self.stage, Stage::Resting { .. }) {
            self.history.stage_ms = now_ms;
        }
        self.rests = self.rests.saturating_add(1);
        let until_ms = now_ms.saturating_add(self.rest_ms());
        self.stage = Stage::Resting { until_ms, cause };
        self.window = Window::default();
        self.server_errors = 0;
        cause
    }

    /// How long the rest is that it is in.
    fn rest_ms(&self) -> u64 {
        let doublings = self.rests.saturating_sub(1).min(32);
        let longest = millis(self.rules.longest_rest).max(1);
        millis(self.rules.rest)
            .max(1)
            .saturating_mul(1 << doublings)
            .min(longest)
    }

    fn come_back(&mut self, now_ms: u64) {
        self.stage = Stage::Returning { since_ms: now_ms };
        self.history.stage_ms = now_ms;
        self.settle(now_ms);
    }

    /// What time alone ends.
    fn settle(&mut self, now_ms: u64) {
        if let Stage::Returning { since_ms } = self.stage
            && now_ms.saturating_sub(since_ms) >= millis(self.rules.slow_start)
        {
            self.stage = Stage::Serving;
            self.rests = 0;
            self.history.stage_ms = since_ms.saturating_add(millis(self.rules.slow_start));
            self.history.trouble = None;
        }
        if self.told_until_ms <= now_ms {
            self.told_until_ms = 0;
        }
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// A number from 0 up to 1 for each of a row of numbers, evenly spread: the golden ratio's multiples.
fn spread(seq: u64) -> f64 {
    (seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
}
