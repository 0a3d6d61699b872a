//! Circuit breaker of a policy version: it opens after too many failed calls, and closes after good probes.
//!
//! While it is closed a call costs two atomic operations and takes no lock; times are handed in. It opens when, within
//! [`CircuitSpec::window`] of a fault, both [`CircuitSpec::faults`] were counted and their share of the calls reached
//! [`CircuitSpec::share`]. Every [`CircuitSpec::open_time`], doubled with each failed probe up to
//! [`CircuitSpec::max_open_time`], one call is let through; after [`CircuitSpec::probes`] good ones in a row it closes.
//! Opened again within [`CircuitSpec::max_open_time`] of that, it goes on doubling.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Thresholds at which a circuit opens and closes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CircuitSpec {
    /// Faults within the window below which it never opens; at least 1 counts.
    pub faults: u32,
    /// Least share of the window's calls that failed, 0 to 1.
    pub share: f64,
    /// Window in which faults are counted, from the first of them.
    pub window: Duration,
    /// Time that it stays open at first.
    pub open_time: Duration,
    /// Longest time that it stays open, however many probes failed.
    pub max_open_time: Duration,
    /// Good calls in a row that close it.
    pub probes: u32,
}

impl Default for CircuitSpec {
    fn default() -> Self {
        Self {
            faults: 5,
            share: 0.05,
            window: Duration::from_secs(10),
            open_time: Duration::from_secs(1),
            max_open_time: Duration::from_mins(1),
            probes: 3,
        }
    }
}

/// State of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Every call passes.
    Closed,
    /// No call passes but a probe now and then.
    Open,
    /// The last probe was good. It closes after some more.
    HalfOpen,
}

impl CircuitState {
    /// Returns its name in metrics and on pages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// The kind of a call that passed. It is returned to the circuit with the call's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Regular call: the circuit was closed.
    Regular,
    /// The call that tests whether the circuit can close.
    Probe,
}

/// Effect of a call's outcome on the circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitChange {
    /// No change.
    None,
    /// The circuit is open, for so long.
    Opened(Duration),
    /// The circuit is closed again.
    Closed,
}

/// The circuit of one version.
#[derive(Debug)]
pub struct Circuit {
    spec: CircuitSpec,
    is_open: AtomicBool,
    calls: AtomicU64,
    faults: AtomicU64,
    /// While it is open: microseconds at which one call is let through.
    next_probe: AtomicU64,
    openings: AtomicU64,
    tally: Mutex<Tally>,
}

/// Looked at only where a call failed or the circuit is open.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    window_since: u64,
    calls_before: u64,
    faults: u32,
    /// Duration of the present opening, or of the last one.
    rest: Duration,
    good_probes: u32,
    /// Time at which it was closed last.
    closed: u64,
}

impl Circuit {
    /// Returns a closed circuit.
    #[must_use]
    pub fn new(spec: CircuitSpec) -> Self {
        Self {
            spec,
            is_open: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            next_probe: AtomicU64::new(0),
            openings: AtomicU64::new(0),
            tally: Mutex::default(),
        }
    }

    /// Returns whether a call may be made now. An admitted call reports to [`Circuit::succeeded`] or
    /// [`Circuit::failed`].
    #[must_use]
    pub fn admit(&self, now_us: u64) -> Option<Admission> {
        if self.is_closed() {
            return Some(Admission::Regular);
        }
        let due = self.next_probe.load(Ordering::Relaxed);
        if now_us < due {
            return None;
        }
        // The call that moves the time is the probe. If it reports nothing, another follows after a rest.
        let after = now_us.saturating_add(micros(self.spec.open_time).max(1));
        self.next_probe
            .compare_exchange(due, after, Ordering::Relaxed, Ordering::Relaxed)
            .ok()
            .map(|_| Admission::Probe)
    }

    /// Records a call with a valid answer.
    pub fn succeeded(&self, admission: Admission, now_us: u64) -> CircuitChange {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if admission == Admission::Regular {
            return CircuitChange::None;
        }
        let mut tally = self.tally();
        tally.good_probes += 1;
        if tally.good_probes < self.spec.probes {
            self.next_probe.store(now_us, Ordering::Relaxed);
            return CircuitChange::None;
        }
        *tally = Tally {
            rest: tally.rest,
            closed: now_us,
            ..Tally::default()
        };
        self.is_open.store(false, Ordering::Relaxed);
        CircuitChange::Closed
    }

    /// Records a failed call.
    pub fn failed(&self, admission: Admission, now_us: u64) -> CircuitChange {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        self.faults.fetch_add(1, Ordering::Relaxed);
        let mut tally = self.tally();
        if !self.is_closed() {
            if admission == Admission::Regular {
                // The call was under way when the circuit opened.
                return CircuitChange::None;
            }
            let longer = self.longer_than(tally.rest);
            return self.open(&mut tally, longer, now_us);
        }
        let is_new =
            tally.faults == 0 || now_us.saturating_sub(tally.window_since) > micros(self.spec.window);
        if is_new {
            *tally = Tally {
                window_since: now_us,
                calls_before: calls - 1,
                faults: 0,
                ..*tally
            };
        }
        tally.faults = tally.faults.saturating_add(1);
        let in_window = calls.saturating_sub(tally.calls_before);
        if tally.faults < self.spec.faults || f64::from(tally.faults) < self.spec.share * in_window as f64 {
            return CircuitChange::None;
        }
        self.openings.fetch_add(1, Ordering::Relaxed);
        // One that fails now and then is not let flap: it rests longer each time it was closed too soon.
        let too_soon = now_us.saturating_sub(tally.closed) < micros(self.spec.max_open_time);
        let rest = match too_soon && !tally.rest.is_zero() {
            true => self.longer_than(tally.rest),
            false => self.spec.open_time,
        };
        self.open(&mut tally, rest, now_us)
    }

    fn longer_than(&self, rest: Duration) -> Duration {
        (rest * 2).min(self.spec.max_open_time)
    }

    fn open(&self, tally: &mut Tally, rest: Duration, now_us: u64) -> CircuitChange {
        tally.rest = rest;
        tally.good_probes = 0;
        self.next_probe
            .store(now_us.saturating_add(micros(rest)), Ordering::Relaxed);
        self.is_open.store(true, Ordering::Relaxed);
        CircuitChange::Opened(rest)
    }

    /// Closes the circuit, whatever the counts, on an operator's command.
    pub fn close(&self) {
        let mut tally = self.tally();
        *tally = Tally::default();
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// Returns whether it lets every call through.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.is_open.load(Ordering::Relaxed)
    }

    /// Returns its state.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        if self.is_closed() {
            CircuitState::Closed
        } else if self.tally().good_probes > 0 {
            CircuitState::HalfOpen
        } else {
            CircuitState::Open
        }
    }

    /// Returns how often it opened.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// Calls that failed, from its beginning on.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Circuit {
    fn default() -> Self {
        Self::new(CircuitSpec::default())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn circuit() -> Circuit {
        Circuit::new(CircuitSpec {
            faults: 3,
            share: 0.5,
            ..CircuitSpec::default()
        })
    }

    fn fail(circuit: &Circuit, now_us: u64) -> CircuitChange {
        circuit.failed(Admission::Regular, now_us)
    }

    fn succeed(circuit: &Circuit, now_us: u64) -> CircuitChange {
        circuit.succeeded(Admission::Regular, now_us)
    }

    fn opened() -> Circuit {
        let circuit = circuit();
        assert_eq!(fail(&circuit, 0), CircuitChange::None);
        assert_eq!(fail(&circuit, 1), CircuitChange::None);
        assert_eq!(fail(&circuit, 2), CircuitChange::Opened(Duration::from_secs(1)));
        circuit
    }

    #[test]
    fn a_fault_now_and_then_opens_nothing() {
        let circuit = circuit();
        for at in 0..1_000 {
            assert_eq!(succeed(&circuit, at), CircuitChange::None);
            assert_eq!(succeed(&circuit, at), CircuitChange::None);
            assert_eq!(fail(&circuit, at), CircuitChange::None);
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
    }

    #[test]
    fn faults_far_apart_are_not_counted_together() {
        let circuit = circuit();
        for at in 0..100 {
            assert_eq!(fail(&circuit, at * 11 * SECOND), CircuitChange::None);
        }
    }

    #[test]
    fn many_faults_at_once_open_it_until_the_rest_is_over() {
        let circuit = opened();
        assert_eq!(circuit.state(), CircuitState::Open);
        assert_eq!(circuit.admit(SECOND), None);
        assert_eq!(circuit.admit(SECOND + 2), Some(Admission::Probe));
        assert_eq!(circuit.admit(SECOND + 3), None, "one call at a time");
        assert_eq!((circuit.openings(), circuit.faults()), (1, 3));
    }

    #[test]
    fn good_probes_in_a_row_close_it() {
        let circuit = opened();
        let mut now = 2 * SECOND;
        for expected in [CircuitChange::None, CircuitChange::None, CircuitChange::Closed] {
            assert_eq!(circuit.admit(now), Some(Admission::Probe));
            assert_eq!(circuit.succeeded(Admission::Probe, now), expected);
            now += 1;
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
        assert_eq!(fail(&circuit, now), CircuitChange::None, "counted again");
    }

    #[test]
    fn each_probe_in_vain_doubles_the_rest_up_to_the_longest() {
        let circuit = opened();
        let mut now = 2 * SECOND;
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(circuit.admit(now), Some(Admission::Probe));
            let rest = Duration::from_secs(seconds);
            assert_eq!(circuit.failed(Admission::Probe, now), CircuitChange::Opened(rest));
            assert_eq!(circuit.admit(now + seconds * SECOND - 1), None);
            now += seconds * SECOND;
        }
        assert_eq!(circuit.openings(), 1, "it was never closed in between");
    }

    fn close(circuit: &Circuit, now: u64) {
        for at in now..now + 3 {
            assert_eq!(circuit.admit(at), Some(Admission::Probe));
            circuit.succeeded(Admission::Probe, at);
        }
        assert_eq!(circuit.state(), CircuitState::Closed);
    }

    #[test]
    fn one_that_opens_again_soon_rests_longer_and_later_as_at_first() {
        let circuit = opened();
        let mut now = 2 * SECOND;
        for seconds in [2, 4, 8] {
            close(&circuit, now);
            let rest = Duration::from_secs(seconds);
            fail(&circuit, now + 10);
            fail(&circuit, now + 11);
            assert_eq!(fail(&circuit, now + 12), CircuitChange::Opened(rest));
            now += 12 + seconds * SECOND;
        }
        close(&circuit, now);
        now += 61 * SECOND;
        fail(&circuit, now);
        fail(&circuit, now + 1);
        assert_eq!(
            fail(&circuit, now + 2),
            CircuitChange::Opened(Duration::from_secs(1))
        );
    }

    #[test]
    fn one_that_fails_every_fifth_call_comes_to_be_called_a_few_times_a_minute() {
        let circuit = Circuit::default();
        let mut calls = 0;
        let mut in_minute = [0; 10];
        // A hundred calls a second.
        for now in (0..600 * SECOND).step_by(10_000) {
            let Some(admission) = circuit.admit(now) else {
                continue;
            };
            in_minute[(now / (60 * SECOND)) as usize] += 1;
            calls += 1;
            match calls % 5 {
                0 => circuit.failed(admission, now),
                _ => circuit.succeeded(admission, now),
            };
        }
        assert!(in_minute[0] > 100, "{in_minute:?}");
        assert!(in_minute[3..].iter().all(|count| *count <= 30), "{in_minute:?}");
    }

    #[test]
    fn calls_under_way_when_it_opened_change_nothing() {
        let circuit = opened();
        assert_eq!(fail(&circuit, 3), CircuitChange::None);
        for at in 4..10 {
            assert_eq!(succeed(&circuit, at), CircuitChange::None);
        }
        assert_eq!(circuit.state(), CircuitState::Open);
        assert_eq!(circuit.admit(SECOND + 2), Some(Admission::Probe));
    }

    #[test]
    fn an_operator_closes_it() {
        let circuit = opened();
        circuit.close();
        assert_eq!(circuit.admit(3), Some(Admission::Regular));
        assert_eq!(circuit.state(), CircuitState::Closed);
    }
}
