//! Wake budget of freed capacity: how many held requests are decided again because of it.
//!
//! Freed capacity can let several held requests go, or none. Only the policy can decide that, and each decision costs
//! time: with a thousand held requests, capacity that none of them can use would cost a thousand decisions. So a budget
//! is spent in queue order: on a few requests that wait for the worker, a few that wait for another and might be served
//! here sooner, and more that wait for none in particular. That is enough: in replays of Mooncake's conversation trace
//! at twice its speed the mean time to first token is the same as with a decision about every held request
//! (`host/adr/0016-wake-budget.md`).

use super::tenant_queue::OrderKey;
use crate::id::WorkerId;

/// Fruitless decisions about requests that wait for the worker itself.
const AIMED: u8 = 2;
/// Wake-ups for requests that wait for no worker in particular.
const FREE: u8 = 16;
/// Wake-ups for requests that wait for another worker.
const ELSEWHERE: u8 = 4;

/// Capacity that was freed, with its wake budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityEvent {
    /// The worker; none: any.
    worker: Option<WorkerId>,
    aimed: u8,
    free: u8,
    elsewhere: u8,
    /// Set if only requests that wait for the worker are decided again.
    is_aimed_only: bool,
    /// Order after which held requests are not decided again; none: all are.
    last: Option<OrderKey>,
}

impl CapacityEvent {
    /// Returns the event of capacity at one worker.
    #[must_use]
    pub const fn at(worker: WorkerId) -> Self {
        Self::new(Some(worker))
    }

    /// Returns the event of capacity that another router freed at one worker. Only requests that wait for that worker are
    /// decided again: all routers receive the event at once, and must not send a request each.
    #[must_use]
    pub const fn elsewhere_at(worker: WorkerId) -> Self {
        Self {
            free: 0,
            elsewhere: 0,
            is_aimed_only: true,
            ..Self::new(Some(worker))
        }
    }

    /// Returns the event of capacity at any worker, or of a new one.
    #[must_use]
    pub const fn anywhere() -> Self {
        Self::new(None)
    }

    /// Returns the worker; `None`: any.
    #[must_use]
    pub const fn worker(&self) -> Option<WorkerId> {
        self.worker
    }

    const fn new(worker: Option<WorkerId>) -> Self {
        Self {
            worker,
            aimed: AIMED,
            free: FREE,
            elsewhere: ELSEWHERE,
            is_aimed_only: false,
            last: None,
        }
    }

    /// Returns the event with its whole budget: a request was sent or left, so there may be room for more.
    #[must_use]
    pub const fn reset(self) -> Self {
        let whole = match (self.is_aimed_only, self.worker) {
            (true, Some(worker)) => Self::elsewhere_at(worker),
            _ => Self::new(self.worker),
        };
        Self {
            last: self.last,
            ..whole
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
            (None, _) | (_, None) => &mut self.free,
            (Some(here), Some(there)) if here == there => &mut self.aimed,
            _ => &mut self.elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: WorkerId = WorkerId(1);
    const THERE: WorkerId = WorkerId(2);

    /// Returns how many fruitless decisions the budget allows.
    fn asked(mut release: CapacityEvent, waits_for: Option<WorkerId>) -> u8 {
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
        assert_eq!(asked(release, Some(HERE)), AIMED);
        assert_eq!(asked(release, Some(THERE)), ELSEWHERE);
        assert_eq!(asked(release, None), FREE);
        for waits_for in [None, Some(HERE), Some(THERE)] {
            assert_eq!(asked(CapacityEvent::anywhere(), waits_for), FREE);
        }
    }

    #[test]
    fn each_kind_has_its_own_budget_until_a_request_is_sent() {
        let mut release = CapacityEvent::at(HERE);
        (0..AIMED).for_each(|_| release.spend(Some(HERE)));
        assert!(
            !release.has_budget(Some(HERE)) && release.has_budget(Some(THERE)) && release.has_budget(None)
        );
        assert_eq!(release.reset(), CapacityEvent::at(HERE));
    }

    #[test]
    fn capacity_of_another_router_is_for_requests_that_wait_for_the_worker() {
        let event = CapacityEvent::elsewhere_at(HERE);
        for event in [event, event.reset()] {
            assert_eq!(asked(event, Some(HERE)), AIMED);
            assert_eq!((asked(event, Some(THERE)), asked(event, None)), (0, 0));
        }
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
