//! Wake budget of freed capacity: how many held requests are decided again because of it.
//!
//! Freed capacity can let several held requests go, or none. Only the policy can decide that, and each decision costs
//! time: with a thousand held requests, capacity that none of them can use would cost a thousand decisions. So a budget
//! is spent in queue order: on a few requests that wait for the worker, a few that wait for another and might be served
//! here sooner, and more that wait for none in particular. That is enough: in replays of Mooncake's conversation trace
//! at twice its speed the mean time to first token is the same as with a decision about every held request
//! (`host/adr/0016-wake-budget.md`).

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
}

impl CapacityEvent {
    /// Returns the event of capacity at one worker.
    #[must_use]
    pub const fn at(worker: WorkerId) -> Self {
        Self::new(Some(worker))
    }

    /// Returns the event of capacity at any worker, or of a new one.
    #[must_use]
    pub const fn anywhere() -> Self {
        Self::new(None)
    }

    const fn new(worker: Option<WorkerId>) -> Self {
        Self {
            worker,
            aimed: AIMED,
            free: FREE,
            elsewhere: ELSEWHERE,
        }
    }

    /// Returns the event with its whole budget: a request was sent or left, so there may be room for more.
    #[must_use]
    pub const fn reset(self) -> Self {
        Self::new(self.worker)
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
}
