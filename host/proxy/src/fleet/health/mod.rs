//! Health of workers: how they enter service, are ejected because of requests and probes, and return.
//!
//! `state/` is the state machine, one for each worker. This module shares it between requests. While nothing is wrong
//! with a worker, a request costs one relaxed load and one count.
//!
//! `rounds.rs` queries workers beside the requests: their health page (`probe.rs`), their own load report (`scrape.rs`)
//! and their models (`catalog/`). `service_watch.rs` watches workers that are out of service.

mod ejection;
mod metrics;
mod probe;
mod query_settings;
mod rounds;
mod scrape;
mod service_watch;
mod spec;
mod state;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use self::metrics::{HealthFamilies, HealthMetrics, RetryMetrics};
pub(crate) use self::rounds::keep_watch;
pub use self::spec::{HealthSpec, ProbeSpec, ScrapeSpec};
pub(crate) use self::state::{AttemptToken, Finding, HealthStatus, StateReport};
use self::state::{LONGEST_REASON, State};
use crate::base::label::EjectionCause;

/// Health of one worker. Two concurrent requests may both try an ejected worker, which does no harm.
#[derive(Debug)]
pub(crate) struct WorkerHealth {
    /// `true` while the state needs a look: something counts against the worker.
    watched: AtomicBool,
    /// Consecutive failures, as [`WorkerHealth::failures`].
    failures: AtomicU32,
    /// Good answers so far.
    answers: AtomicU64,
    /// Set while the worker drains: no new requests, whatever its health.
    draining: AtomicBool,
    /// Time of the next check, on the clock of its health. 0 where no check is planned.
    next_check_ms: AtomicU64,
    /// State machine. The lock is held for some additions, and never across an await.
    state: Mutex<State>,
}

impl Default for WorkerHealth {
    fn default() -> Self {
        Self {
            // A new worker is pending.
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
    /// Sets the rules of its pool for the worker of that name, from now on.
    pub(crate) fn set_rules(&self, rules: &HealthSpec, name: &str) {
        let draining = rules.draining.iter().any(|draining| **draining == *name);
        self.draining.store(draining, Ordering::Relaxed);
        self.change(|state| state.set_rules(rules));
    }

    /// Lets the worker drain for good: it has left the configuration.
    pub(crate) fn retire(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Returns the number of consecutive failures to answer. The number is at least one while a trial request is under
    /// way.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns `true` if the worker gets no new requests, whatever its health.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the number of good answers so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns the health status. The clock is read only if something counts against the worker.
    pub(crate) fn status(&self, now_ms: impl Fn() -> u64) -> HealthStatus {
        if !self.is_watched() {
            return HealthStatus::Serving;
        }
        self.change(|state| state.status(now_ms()))
    }

    /// Returns `true` if slow start admits the request of that number to the worker.
    pub(crate) fn admits(&self, seq: u64, now_ms: impl Fn() -> u64) -> bool {
        !self.is_watched() || self.change(|state| state.admits(seq, now_ms()))
    }

    /// Records that a request is about to be sent.
    pub(crate) fn begin(&self, now_ms: impl Fn() -> u64) -> AttemptToken {
        if !self.is_watched() {
            return AttemptToken::Plain;
        }
        self.change(|state| state.begin(now_ms()))
    }

    /// Records a good answer to a request.
    pub(crate) fn answered(&self, dispatch: AttemptToken, now_ms: impl Fn() -> u64) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if self.is_watched() {
            self.change(|state| state.answered(dispatch, now_ms()));
        }
    }

    /// Records a failure to answer. Returns the cause if an ejection begins now. `may_eject` is called if the worker's
    /// answers justify an ejection, and returns whether the others allow it.
    pub(crate) fn failed(
        &self,
        dispatch: AttemptToken,
        now_ms: u64,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<EjectionCause> {
        let answers = self.answers();
        let change = |state: &mut State| state.failed(dispatch, now_ms, answers);
        self.ejected_by(now_ms, answers, change, may_eject)
    }

    /// Records an answer with a status of 500 or more, as [`WorkerHealth::failed`].
    pub(crate) fn server_error(
        &self,
        dispatch: AttemptToken,
        now_ms: u64,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<EjectionCause> {
        let answers = self.answers();
        let change = |state: &mut State| state.server_error(dispatch, now_ms, answers);
        self.ejected_by(now_ms, answers, change, may_eject)
    }

    /// Changes the state, and ejects the worker if its answers justify it. `answers` is the number of good ones so far.
    fn ejected_by(
        &self,
        now_ms: u64,
        answers: u64,
        change: impl FnOnce(&mut State) -> Option<EjectionCause>,
        may_eject: impl FnOnce() -> bool,
    ) -> Option<EjectionCause> {
        let (ejected, cause) = self.change(|state| (change(state), state.ejection_cause(answers)));
        // The other workers are inspected while no lock is held.
        if ejected.is_some() || cause.is_none() || !may_eject() {
            return ejected;
        }
        self.change(|state| state.eject(now_ms, answers))
    }

    /// Records the worker's `Retry-After`: it requests a pause of that length.
    pub(crate) fn passed_over(&self, after_ms: u64, now_ms: u64) {
        self.change(|state| state.passed_over(after_ms, now_ms));
    }

    /// Records the result of a probe. Returns the cause if that took the worker out of service.
    pub(crate) fn probed(&self, finding: Finding, now_ms: u64) -> Option<EjectionCause> {
        self.change(|state| state.probed(finding, now_ms))
    }

    /// Returns `true` if the worker was never reached.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_watched() && self.lock().is_pending()
    }

    /// Stores the last failure for the reports: an error, never a prompt.
    pub(crate) fn note(&self, trouble: &str) {
        let end = trouble.floor_char_boundary(LONGEST_REASON.min(trouble.len()));
        self.change(|state| state.note(trouble[..end].into()));
    }

    /// Records the time of the next check.
    pub(crate) fn plan_check(&self, at_ms: u64) {
        self.next_check_ms.store(at_ms, Ordering::Relaxed);
    }

    /// Returns the state, with the next check where only that can end it.
    pub(crate) fn report(&self, now_ms: u64) -> StateReport {
        let mut report = self.change(|state| state.report(now_ms));
        if matches!(report.status, HealthStatus::Pending | HealthStatus::Unhealthy) {
            let next_ms = self.next_check_ms.load(Ordering::Relaxed);
            report.next_ms = (next_ms > 0).then_some(next_ms);
        }
        report
    }

    /// Returns `true` if nothing at all counts against the worker: it serves, and slow start admits any request.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_watched()
    }

    fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        self.watched.store(!state.is_plain(), Ordering::Relaxed);
        self.failures.store(state.failures(), Ordering::Relaxed);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves plain numbers, whatever a panic elsewhere did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
