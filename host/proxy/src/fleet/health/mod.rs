//! Health of workers: how they enter service, are ejected by what requests and probes find, and come back.
//!
//! `state.rs` is the machine, one for each worker; here it is shared between requests. While nothing speaks against a worker a
//! request pays one relaxed load and one count. `rounds.rs` asks workers beside the requests: for their health page
//! (`probe.rs`), for their own word on their load (`scrape.rs`) and for their models (`catalog/`). `newcomers.rs` watches those that
//! were never reached.

mod ejection;
mod metrics;
mod newcomers;
mod probe;
mod rounds;
mod scrape;
mod spec;
mod state;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use self::metrics::{HealthFamilies, HealthMetrics, RetryMetrics};
pub(crate) use self::rounds::keep_watch;
pub use self::scrape::ScrapeSpec;
pub use self::spec::{HealthSpec, ProbeSpec};
pub(crate) use self::state::{AttemptToken, Finding, HealthStatus, StateReport};
use self::state::{LONGEST_REASON, State};
use crate::base::label::EjectionCause;

/// One worker's health. Two requests that race may both try a resting worker, which does no harm.
#[derive(Debug)]
pub(crate) struct WorkerHealth {
    /// Whether anything speaks against it; else the rest needs no look.
    watched: AtomicBool,
    /// As [`WorkerHealth::failures`].
    failures: AtomicU32,
    /// Good answers so far.
    answers: AtomicU64,
    /// It gets no new requests, whatever its health.
    draining: AtomicBool,
    /// When it is checked next, on the clock of its health; 0 where no check is planned.
    next_check_ms: AtomicU64,
    /// Held for some additions, and never across an await.
    state: Mutex<State>,
}

impl Default for WorkerHealth {
    fn default() -> Self {
        Self {
            // It is pending.
            watched: AtomicBool::new(true),
            failures: AtomicU32::new(0),
            answers: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            next_check_ms: AtomicU64::new(0),
            state: Mutex::new(State::new(HealthSpec::default())),
        }
    }
}

impl WorkerHealth {
    /// The rules of its pool for the worker of that name, from now on.
    pub(crate) fn set_rules(&self, rules: &HealthSpec, name: &str) {
        let draining = rules.draining.iter().any(|draining| **draining == *name);
        self.draining.store(draining, Ordering::Relaxed);
        self.change(|state| state.set_rules(rules));
    }

    /// Failures to answer in a row; at least one while a trial is to tell whether it is back.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether it gets no new requests, whatever its health.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Good answers so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Where it stands; the clock is read only if anything speaks against it.
    pub(crate) fn stance(&self, now_ms: impl Fn() -> u64) -> HealthStatus {
        if !self.is_watched() {
            return HealthStatus::Serving;
        }
        self.change(|state| state.stance(now_ms()))
    }

    /// Whether the request of that number may be offered it, as far as it has just come back.
    pub(crate) fn admits(&self, seq: u64, now_ms: impl Fn() -> u64) -> bool {
        !self.is_watched() || self.change(|state| state.admits(seq, now_ms()))
    }

    /// A request is about to be sent.
    pub(crate) fn begin(&self, now_ms: impl Fn() -> u64) -> AttemptToken {
        if !self.is_watched() {
            return AttemptToken::Plain;
        }
        self.change(|state| state.begin(now_ms()))
    }

    /// A request was answered well.
    pub(crate) fn answered(&self, dispatch: AttemptToken, now_ms: impl Fn() -> u64) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if self.is_watched() {
            self.change(|state| state.answered(dispatch, now_ms()));
        }
    }

    /// It failed to answer. Why it rests now, if it begins to. `may_eject` is asked once it is to rest for what it answered: whether
    /// the others allow it.
    pub(crate) fn failed(
        &self,
        dispatch: AttemptToken,
        now_ms: u64,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<EjectionCause> {
        let seen = (now_ms, self.answers());
        self.saw(seen, |state| state.failed(dispatch, seen), may_eject)
    }

    /// It answered with a status of 500 or more; as [`WorkerHealth::failed`].
    pub(crate) fn server_error(
        &self,
        dispatch: AttemptToken,
        now_ms: u64,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<EjectionCause> {
        let seen = (now_ms, self.answers());
        self.saw(seen, |state| state.server_error(dispatch, seen), may_eject)
    }

    fn saw(
        &self,
        seen: (u64, u64),
        change: impl FnOnce(&mut State) -> Option<EjectionCause>,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<EjectionCause> {
        let (rests, deserves) = self.change(|state| (change(state), state.deserves(seen.1)));
        // The others are looked at while none is locked.
        if rests.is_some() || deserves.is_none() || !may_eject() {
            return rests;
        }
        self.change(|state| state.eject(seen))
    }

    /// It asked not to be asked for so long.
    pub(crate) fn passed_over(&self, after_ms: u64, now_ms: u64) {
        self.change(|state| state.passed_over(after_ms, now_ms));
    }

    /// A probe ended. Why it is out of service now, if that took it out.
    pub(crate) fn probed(&self, finding: Finding, now_ms: u64) -> Option<EjectionCause> {
        self.change(|state| state.probed(finding, now_ms))
    }

    /// Whether it was never reached.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_watched() && self.lock().is_pending()
    }

    /// Keeps what went wrong for the reports: an error, never a prompt.
    pub(crate) fn note(&self, trouble: &str) {
        let end = trouble.floor_char_boundary(LONGEST_REASON.min(trouble.len()));
        self.change(|state| state.note(trouble[..end].into()));
    }

    /// Records when it is checked next.
    pub(crate) fn plan_check(&self, at_ms: u64) {
        self.next_check_ms.store(at_ms, Ordering::Relaxed);
    }

    /// Its state, with the next check where only that can end it.
    pub(crate) fn report(&self, now_ms: u64) -> StateReport {
        let mut report = self.change(|state| state.report(now_ms));
        if matches!(report.stance, HealthStatus::Pending | HealthStatus::Unhealthy) {
            let next_ms = self.next_check_ms.load(Ordering::Relaxed);
            report.next_ms = (next_ms > 0).then_some(next_ms);
        }
        report
    }

    fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let told = change(&mut state);
        self.watched.store(!state.is_plain(), Ordering::Relaxed);
        self.failures.store(state.failures(), Ordering::Relaxed);
        told
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves plain numbers, whatever a panic elsewhere did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
