//! Wake budget of freed capacity: how many held requests are decided again because of it.
//!
//! Freed capacity can let several held requests go, or none. Only the policy can decide that, and each decision costs
//! time: with a thousand held requests, capacity that none of them can use would cost a thousand decisions. So a budget
//! is spent in queue order: on a few requests that wait for the worker, a few that wait for another and might be served
//! here sooner, and more that wait for none in particular. That is enough: in replays of Mooncake's conversation trace
//! at twice its speed the mean time to first token is the same as with a decision about every held request
//! (`host/adr/0016-wake-budget.md`). Requests that wait for another worker are decided at most every 1.5 ms
//! ([`ElsewherePace`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::order_key::OrderKey;
use crate::id::WorkerId;

/// Budget of capacity at one worker, or anywhere.
const WHOLE: WakeBudget = WakeBudget {
    aimed: 2,
    free: 16,
    elsewhere: 4,
};
/// Shortest time between two events with budget for requests that wait for another worker, in microseconds.
const ELSEWHERE_EVERY_US: u64 = 1_500;

/// Capacity that was freed, with its wake budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityEvent {
    /// The worker; none: any.
    worker: Option<WorkerId>,
    /// Budget after each request that was sent or has left.
    whole: WakeBudget,
    left: WakeBudget,
    /// Order after which held requests are not decided again; none: all are.
    last: Option<OrderKey>,
}

/// Numbers of fruitless decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WakeBudget {
    /// About requests that wait for the worker itself.
    aimed: u8,
    /// About requests that wait for no worker in particular.
    free: u8,
    /// About requests that wait for another worker.
    elsewhere: u8,
}

impl CapacityEvent {
    /// Returns the event of capacity at one worker.
    #[must_use]
    pub const fn at(worker: WorkerId) -> Self {
        Self::new(Some(worker), WHOLE)
    }

    /// Returns the event of capacity that another router freed at one worker. Only requests that wait for that worker
    /// are decided again: all routers receive the event at once, and must not send a request each.
    #[must_use]
    pub const fn elsewhere_at(worker: WorkerId) -> Self {
        let aimed = WakeBudget {
            free: 0,
            elsewhere: 0,
            ..WHOLE
        };
        Self::new(Some(worker), aimed)
    }

    /// Returns the event of capacity at any worker, or of a new one.
    #[must_use]
    pub const fn anywhere() -> Self {
        Self::new(None, WHOLE)
    }

    /// Returns the worker; `None`: any.
    #[must_use]
    pub const fn worker(&self) -> Option<WorkerId> {
        self.worker
    }

    const fn new(worker: Option<WorkerId>, whole: WakeBudget) -> Self {
        Self {
            worker,
            whole,
            left: whole,
            last: None,
        }
    }

    /// Returns the event with its whole budget: a request was sent or left, so there may be room for more.
    #[must_use]
    pub const fn reset(self) -> Self {
        Self {
            left: self.whole,
            ..self
        }
    }

    /// Returns the event without budget for requests that wait for another worker.
    const fn without_elsewhere(self) -> Self {
        let whole = WakeBudget {
            elsewhere: 0,
            ..self.whole
        };
        let left = WakeBudget {
            elsewhere: 0,
            ..self.left
        };
        Self { whole, left, ..self }
    }

    /// Returns the event for the requests that this one has no budget for now, whichever worker they wait for: a later
    /// event within the pause has freed another one.
    const fn deferred(self) -> Self {
        let whole = WakeBudget {
            aimed: 0,
            free: self.whole.elsewhere,
            elsewhere: 0,
        };
        Self {
            worker: None,
            whole,
            left: whole,
            last: self.last,
        }
    }

    /// Returns the event for requests up to that order only: a later one leaves the capacity to another router, which
    /// holds a request of that order for the worker. An infinite order is no limit.
    #[must_use]
    pub fn up_to(self, order: f64) -> Self {
        Self {
            last: (order < f64::INFINITY).then(|| OrderKey::of(order)),
            ..self
        }
    }

    /// Returns whether a held request of that order may be decided again.
    #[must_use]
    pub fn reaches(&self, order: f64) -> bool {
        self.last.is_none_or(|last| OrderKey::of(order) <= last)
    }

    /// Returns whether the budget allows a decision about a request that waits for that worker.
    #[must_use]
    pub fn has_budget(mut self, waits_for: Option<WorkerId>) -> bool {
        *self.left(waits_for) > 0
    }

    /// Spends budget on a request that waits for that worker.
    pub fn spend(&mut self, waits_for: Option<WorkerId>) {
        let left = self.left(waits_for);
        *left = left.saturating_sub(1);
    }

    fn left(&mut self, waits_for: Option<WorkerId>) -> &mut u8 {
        match (self.worker, waits_for) {
            (None, _) | (_, None) => &mut self.left.free,
            (Some(here), Some(there)) if here == there => &mut self.left.aimed,
            _ => &mut self.left.elsewhere,
        }
    }
}

/// Pace of the decisions about requests that wait for another worker than the one with freed capacity. They rarely
/// end a wait, and a pool that frees capacity thousands of times a second would spend its time on them.
#[derive(Debug, Default)]
pub struct ElsewherePace {
    /// Time from which an event has budget for them.
    next_us: AtomicU64,
    /// True if events had none, and none has had it since.
    is_deferred: AtomicBool,
}

/// A capacity event with the budget that its pace allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacedEvent {
    /// The event.
    pub now: CapacityEvent,
    /// The event that decides the other requests later, unless [`ElsewherePace::take_deferred`] refuses it then.
    pub later: Option<DeferredEvent>,
}

/// Event of capacity that was freed within a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeferredEvent {
    /// The event.
    pub event: CapacityEvent,
    /// End of the pause, in microseconds.
    pub at_us: u64,
}

impl ElsewherePace {
    /// Returns the event at that time, with budget for requests that wait for another worker at most every 1.5 ms. The
    /// first event of a pause is deferred for them to its end.
    #[must_use]
    pub fn apply(&self, event: CapacityEvent, now_us: u64) -> PacedEvent {
        let at_once = PacedEvent {
            now: event,
            later: None,
        };
        if event.worker.is_none() || event.left.elsewhere == 0 {
            return at_once;
        }
        // Two threads that read the same time spend the budget twice, which is harmless.
        let at_us = self.next_us.load(Ordering::Relaxed);
        if now_us >= at_us {
            self.begin_pause(now_us);
            return at_once;
        }
        let is_first =
            !self.is_deferred.load(Ordering::Relaxed) && !self.is_deferred.swap(true, Ordering::Relaxed);
        PacedEvent {
            now: event.without_elsewhere(),
            later: is_first.then(|| DeferredEvent {
                event: event.deferred(),
                at_us,
            }),
        }
    }

    /// Returns whether a deferred event is due at that time. An event with budget since then has replaced it.
    #[must_use]
    pub fn take_deferred(&self, now_us: u64) -> bool {
        let is_due =
            now_us >= self.next_us.load(Ordering::Relaxed) && self.is_deferred.load(Ordering::Relaxed);
        if is_due {
            self.begin_pause(now_us);
        }
        is_due
    }

    fn begin_pause(&self, now_us: u64) {
        self.next_us
            .store(now_us.saturating_add(ELSEWHERE_EVERY_US), Ordering::Relaxed);
        self.is_deferred.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: WorkerId = WorkerId(1);
    const THERE: WorkerId = WorkerId(2);

    /// Returns how many fruitless decisions the budget allows.
    fn evaluations(mut release: CapacityEvent, waits_for: Option<WorkerId>) -> u8 {
        let mut count = 0;
        while release.has_budget(waits_for) {
            release.spend(waits_for);
            count += 1;
        }
        count
    }

    #[test]
    fn the_budget_allows_a_few_decisions_of_each_kind() {
        let release = CapacityEvent::at(HERE);
        assert_eq!(evaluations(release, Some(HERE)), WHOLE.aimed);
        assert_eq!(evaluations(release, Some(THERE)), WHOLE.elsewhere);
        assert_eq!(evaluations(release, None), WHOLE.free);
        for waits_for in [None, Some(HERE), Some(THERE)] {
            assert_eq!(evaluations(CapacityEvent::anywhere(), waits_for), WHOLE.free);
        }
    }

    #[test]
    fn each_kind_has_its_own_budget_until_a_request_is_sent() {
        let mut release = CapacityEvent::at(HERE);
        (0..WHOLE.aimed).for_each(|_| release.spend(Some(HERE)));
        assert!(
            !release.has_budget(Some(HERE)) && release.has_budget(Some(THERE)) && release.has_budget(None)
        );
        assert_eq!(release.reset(), CapacityEvent::at(HERE));
    }

    #[test]
    fn capacity_of_another_router_is_for_requests_that_wait_for_the_worker() {
        let event = CapacityEvent::elsewhere_at(HERE);
        for event in [event, event.reset()] {
            assert_eq!(evaluations(event, Some(HERE)), WHOLE.aimed);
            assert_eq!(
                (evaluations(event, Some(THERE)), evaluations(event, None)),
                (0, 0)
            );
        }
    }

    #[test]
    fn requests_that_wait_for_another_worker_are_decided_at_most_every_few_milliseconds() {
        let (pace, event) = (ElsewherePace::default(), CapacityEvent::at(HERE));
        let at_once = |now| PacedEvent { now, later: None };
        let aimed = CapacityEvent::elsewhere_at(HERE);
        assert_eq!(pace.apply(aimed, 7), at_once(aimed));
        assert_eq!(pace.apply(event, 7), at_once(event));
        let soon = pace.apply(event, 7 + ELSEWHERE_EVERY_US - 1).now;
        for event in [soon, soon.reset()] {
            assert_eq!(evaluations(event, Some(THERE)), 0);
            assert_eq!(
                (evaluations(event, Some(HERE)), evaluations(event, None)),
                (WHOLE.aimed, WHOLE.free)
            );
        }
        let anywhere = CapacityEvent::anywhere();
        assert_eq!(
            pace.apply(anywhere, 8),
            at_once(anywhere),
            "capacity anywhere is of use to each"
        );
        assert_eq!(pace.apply(event, 7 + ELSEWHERE_EVERY_US), at_once(event));
    }

    #[test]
    fn the_first_event_of_a_pause_is_deferred_to_its_end() {
        let (pace, event) = (ElsewherePace::default(), CapacityEvent::at(HERE).up_to(5.0));
        assert_eq!(pace.apply(event, 7).later, None);
        let later = pace.apply(event, 8).later.unwrap();
        assert_eq!(later.at_us, 7 + ELSEWHERE_EVERY_US);
        for waits_for in [None, Some(HERE), Some(THERE)] {
            assert_eq!(evaluations(later.event, waits_for), WHOLE.elsewhere);
        }
        assert!(later.event.reaches(5.0) && !later.event.reaches(5.5));
        assert_eq!(pace.apply(event, 9).later, None, "one is deferred already");
        assert!(!pace.take_deferred(later.at_us - 1));
        assert!(pace.take_deferred(later.at_us));
        assert!(!pace.take_deferred(later.at_us), "it is taken once");
        assert!(
            pace.apply(event, later.at_us + 1).later.is_some(),
            "a new pause began"
        );
    }

    #[test]
    fn an_event_with_budget_replaces_the_deferred_one() {
        let (pace, event) = (ElsewherePace::default(), CapacityEvent::at(HERE));
        let _ = pace.apply(event, 0);
        let first = pace.apply(event, 1).later.unwrap();
        assert_eq!(pace.apply(event, first.at_us).now, event);
        assert!(!pace.take_deferred(first.at_us));
        let second = pace.apply(event, first.at_us + 1).later.unwrap();
        assert!(!pace.take_deferred(first.at_us + 1), "it waits for its own pause");
        assert!(pace.take_deferred(second.at_us));
    }

    #[test]
    fn requests_after_those_of_another_router_are_not_decided() {
        let event = CapacityEvent::at(HERE).up_to(5.0);
        assert!(event.reaches(-1e12) && event.reaches(5.0) && !event.reaches(5.5));
        assert!(!event.reset().reaches(6.0));
        let all = CapacityEvent::at(HERE).up_to(f64::INFINITY);
        assert!(all.reaches(f64::INFINITY) && all.reaches(f64::NAN));
    }
}
