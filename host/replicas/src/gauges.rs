//! Gauges: absolute totals of one router, by worker and by pool.

use routing::{BudgetUse, HELD_CLASSES, HeldSummary, LoadTotals};

use crate::id::PoolKey;

/// Number of totals before those of the held requests.
pub(crate) const LOADS: usize = 5;
/// Number of totals of a worker.
const TOTALS: usize = LOADS + 2 * HELD_CLASSES;
/// Order without a held request.
const NO_ORDER: u64 = f64::INFINITY.to_bits();

/// Totals of a router at one worker: its requests in flight, and those that it holds for the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerGauges {
    pub(crate) totals: [u64; TOTALS],
    /// Bits of the policy's order of the first held request; those of infinity if there is none.
    pub(crate) first_order: u64,
}

impl Default for WorkerGauges {
    fn default() -> Self {
        Self {
            totals: [0; TOTALS],
            first_order: NO_ORDER,
        }
    }
}

impl WorkerGauges {
    /// Returns the gauges of these totals.
    #[must_use]
    pub fn new(load: LoadTotals, held: Option<&HeldSummary>) -> Self {
        let mut gauges = Self::default();
        gauges.totals[..LOADS].copy_from_slice(&[
            load.requests.into(),
            load.decoding.into(),
            load.prefill_tokens,
            load.prompt_tokens,
            load.decoding_tokens,
        ]);
        if let Some(held) = held {
            for (two, class) in gauges.totals[LOADS..].chunks_exact_mut(2).zip(held.classes()) {
                two.copy_from_slice(&[class.requests.into(), class.work]);
            }
            gauges.first_order = held.first_order().to_bits();
        }
        gauges
    }

    /// Returns the requests in flight.
    #[must_use]
    pub fn load(&self) -> LoadTotals {
        LoadTotals {
            requests: narrow(self.totals[0]),
            decoding: narrow(self.totals[1]),
            prefill_tokens: self.totals[2],
            prompt_tokens: self.totals[3],
            decoding_tokens: self.totals[4],
        }
    }

    /// Returns the requests that are held for the worker.
    #[must_use]
    pub fn held(&self) -> HeldSummary {
        let classes = std::array::from_fn(|class| {
            let at = LOADS + 2 * class;
            (narrow(self.totals[at]), self.totals[at + 1])
        });
        HeldSummary::of_classes(classes, self.first_order())
    }

    /// Returns the policy's order of the first held request; infinite if there is none.
    #[must_use]
    pub fn first_order(&self) -> f64 {
        f64::from_bits(self.first_order)
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.totals[0]
    }

    /// Returns whether all totals are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.totals.iter().all(|total| *total == 0)
    }

    /// Replaces the part `old` of this sum by `new`. The order of the first held request is no sum and stays.
    pub(crate) fn replace(&mut self, old: &Self, new: &Self) {
        for (sum, (old, new)) in self.totals.iter_mut().zip(old.totals.iter().zip(&new.totals)) {
            // Exact: every total that was added is taken out again.
            *sum = sum.wrapping_sub(*old).wrapping_add(*new);
        }
    }

    /// Returns the gauges with at most so many requests in flight, and all totals in that proportion.
    pub(crate) fn limited_to(&self, requests: u64) -> Self {
        let all = self.totals[0];
        if requests >= all {
            // Requests that are held are of no engine's knowledge: a silent router's count no more.
            let mut limited = *self;
            limited.totals[LOADS..].fill(0);
            limited.first_order = NO_ORDER;
            return limited;
        }
        let mut limited = Self::default();
        for (kept, total) in limited.totals[..LOADS].iter_mut().zip(&self.totals) {
            let share = u128::from(*total) * u128::from(requests) / u128::from(all);
            *kept = u64::try_from(share).unwrap_or(u64::MAX);
        }
        limited
    }

    /// Returns whether a held request might find room that it did not have before: there is less in flight, or the
    /// first held request is gone and was not sent to the worker.
    pub(crate) fn gives_room_since(&self, before: &Self) -> bool {
        let less = |at: usize| self.totals[at] < before.totals[at];
        let is_gone = self.first_order() > before.first_order() && self.totals[0] <= before.totals[0];
        less(0) || less(2) || is_gone
    }
}

/// Totals of a router at one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolGauges {
    /// The pool.
    pub pool: PoolKey,
    /// Requests in its queue.
    pub queued: u64,
    /// Use of its admission budgets.
    pub budget: BudgetUse,
}

impl PoolGauges {
    /// Returns the gauges of a pool without requests.
    #[must_use]
    pub fn empty(pool: PoolKey) -> Self {
        Self {
            pool,
            queued: 0,
            budget: BudgetUse::default(),
        }
    }

    /// Returns the sum with another router's gauges of the pool.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            pool: self.pool,
            queued: self.queued.saturating_add(other.queued),
            budget: BudgetUse {
                requests: self.budget.requests.saturating_add(other.budget.requests),
                tokens: self.budget.tokens.saturating_add(other.budget.tokens),
            },
        }
    }
}

fn narrow(total: u64) -> u32 {
    u32::try_from(total).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauges(requests: u32, prefill_tokens: u64) -> WorkerGauges {
        let mut held = HeldSummary::default();
        held.add(100, 5.0);
        let load = LoadTotals {
            requests,
            prefill_tokens,
            ..LoadTotals::default()
        };
        WorkerGauges::new(load, Some(&held))
    }

    #[test]
    fn gauges_give_back_their_totals() {
        let both = gauges(3, 900);
        assert_eq!((both.load().requests, both.load().prefill_tokens), (3, 900));
        assert_eq!((both.held().requests(), both.held().work_up_to(256)), (1, 100));
        assert_eq!(both.first_order(), 5.0);
        assert!(!both.is_zero() && WorkerGauges::default().is_zero());
    }

    #[test]
    fn room_is_given_by_less_in_flight_and_by_a_held_request_that_is_gone_unsent() {
        let held = gauges(3, 900);
        let unheld = WorkerGauges {
            first_order: NO_ORDER,
            ..held
        };
        assert!(unheld.gives_room_since(&held));
        assert!(!held.gives_room_since(&unheld) && !held.gives_room_since(&held));
        assert!(gauges(2, 900).gives_room_since(&held));
        let sent = WorkerGauges {
            first_order: NO_ORDER,
            ..gauges(4, 900)
        };
        assert!(!sent.gives_room_since(&held));
    }

    #[test]
    fn a_sum_is_exact_after_any_number_of_replacements() {
        let (none, one, two) = (WorkerGauges::default(), gauges(1, 10), gauges(2, u64::MAX));
        let mut sum = none;
        sum.replace(&none, &one);
        sum.replace(&none, &two);
        sum.replace(&one, &two);
        sum.replace(&two, &none);
        assert_eq!(sum.totals, two.totals);
        sum.replace(&two, &none);
        assert!(sum.is_zero());
    }

    #[test]
    fn limited_gauges_keep_their_proportions_and_hold_nothing() {
        let half = gauges(4, 1_000).limited_to(2);
        assert_eq!((half.load().requests, half.load().prefill_tokens), (2, 500));
        let all = gauges(4, 1_000).limited_to(9);
        assert_eq!((all.load().requests, all.held().requests()), (4, 0));
        assert!(gauges(4, 1_000).limited_to(0).is_zero());
        assert!(WorkerGauges::default().limited_to(0).is_zero());
    }
}
