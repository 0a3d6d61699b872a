//! Budget: requests and tokens in flight in a pool, against their limits.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests and tokens under way, against their limits. All of it is atomic: taking costs one read-modify-write for
/// each limit there is.
#[derive(Debug)]
pub struct Budget {
    requests: Meter,
    tokens: Meter,
}

/// The most there may be under way; none: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetLimits {
    /// Requests.
    pub requests: Option<u64>,
    /// Prompt tokens and expected output tokens.
    pub tokens: Option<u64>,
}

/// Use of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetUse {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens and expected output tokens.
    pub tokens: u64,
}

/// No limit.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
struct Meter {
    used: AtomicU64,
    /// Use of other routers, as they report it.
    elsewhere: AtomicU64,
    limit: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BudgetLimits::default())
    }
}

impl Budget {
    /// Returns a budget with nothing in flight.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        let meter = |limit: Option<u64>| Meter {
            used: AtomicU64::new(0),
            elsewhere: AtomicU64::new(0),
            limit: AtomicU64::new(limit.unwrap_or(NONE)),
        };
        Self {
            requests: meter(limits.requests),
            tokens: meter(limits.tokens),
        }
    }

    /// Changes the limits. Requests in flight stay, even above the new limits.
    pub fn set_limits(&self, limits: BudgetLimits) {
        self.requests
            .limit
            .store(limits.requests.unwrap_or(NONE), Ordering::SeqCst);
        self.tokens
            .limit
            .store(limits.tokens.unwrap_or(NONE), Ordering::SeqCst);
    }

    /// Returns the limits now.
    #[must_use]
    pub fn limits(&self) -> BudgetLimits {
        BudgetLimits {
            requests: self.requests.limit(),
            tokens: self.tokens.limit(),
        }
    }

    /// Replaces the use of other routers, which counts against the limits. Returns whether there is less than before.
    pub fn set_elsewhere(&self, elsewhere: BudgetUse) -> bool {
        let requests = self.requests.elsewhere.swap(elsewhere.requests, Ordering::SeqCst);
        let tokens = self.tokens.elsewhere.swap(elsewhere.tokens, Ordering::SeqCst);
        elsewhere.requests < requests || elsewhere.tokens < tokens
    }

    /// Returns the use now, without that of other routers.
    #[must_use]
    pub fn used(&self) -> BudgetUse {
        BudgetUse {
            requests: self.requests.used.load(Ordering::SeqCst),
            tokens: self.tokens.used.load(Ordering::SeqCst),
        }
    }

    /// Takes a request of so many tokens, if there is room for both. A request larger than the whole limit has room if
    /// nothing else is in flight at any router, since it would never have any otherwise.
    ///
    /// Where only one of the two has room, the other is taken for a moment: a caller that is refused must look again
    /// before it relies on a notification.
    #[must_use = "what is taken must be given back"]
    pub fn take(&self, tokens: u64) -> bool {
        if !self.requests.take(1) {
            return false;
        }
        if !self.tokens.take(tokens) {
            self.requests.give(1);
            return false;
        }
        true
    }

    /// Gives back what was taken.
    pub fn give(&self, tokens: u64) {
        self.tokens.give(tokens);
        self.requests.give(1);
    }
}

impl Meter {
    fn limit(&self) -> Option<u64> {
        let limit = self.limit.load(Ordering::SeqCst);
        (limit != NONE).then_some(limit)
    }

    fn take(&self, amount: u64) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        if limit == NONE {
            // Counted all the same: a limit may be set while it is under way.
            self.used.fetch_add(amount, Ordering::SeqCst);
            return true;
        }
        let elsewhere = self.elsewhere.load(Ordering::SeqCst);
        let more = |used: u64| {
            let sum = used.saturating_add(amount);
            let is_alone = used == 0 && elsewhere == 0 && limit > 0;
            (sum.saturating_add(elsewhere) <= limit || is_alone).then_some(sum)
        };
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    fn give(&self, amount: u64) {
        self.used.fetch_sub(amount, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn requests_of_other_routers_take_room_and_give_it_back() {
        let limits = BudgetLimits {
            requests: Some(3),
            tokens: Some(100),
        };
        let budget = Budget::new(limits);
        let elsewhere = |requests, tokens| BudgetUse { requests, tokens };
        assert!(!budget.set_elsewhere(elsewhere(2, 60)));
        assert!(!budget.take(41), "41 and 60 are more than 100");
        assert!(budget.take(40));
        assert!(!budget.take(0), "three of three");
        assert_eq!(budget.used(), elsewhere(1, 40), "the own use");
        assert!(budget.set_elsewhere(elsewhere(2, 10)));
        assert!(budget.set_elsewhere(elsewhere(0, 10)));
        assert!(budget.take(50));
        budget.give(50);
        budget.give(40);
        assert!(!budget.take(101), "others are in flight");
        budget.set_elsewhere(elsewhere(0, 0));
        assert!(budget.take(101), "nothing is in flight");
    }

    #[test]
    fn many_threads_never_have_more_than_the_limit() {
        const LIMIT: u64 = 3;
        let budget = Budget::new(BudgetLimits {
            requests: Some(LIMIT),
            tokens: Some(10 * LIMIT),
        });
        let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if budget.take(10) {
                            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            budget.give(10);
                        }
                    }
                });
            }
        });
        assert!(most.into_inner() <= LIMIT);
        assert_eq!(budget.used(), BudgetUse::default());
    }

    #[test]
    fn a_limit_that_is_lowered_counts_what_is_under_way_and_one_that_is_lifted_lets_in() {
        let budget = Budget::default();
        assert!(budget.take(5) && budget.take(5));
        budget.set_limits(BudgetLimits {
            requests: Some(1),
            tokens: None,
        });
        assert!(!budget.take(1));
        budget.give(5);
        assert!(!budget.take(1));
        budget.set_limits(BudgetLimits::default());
        assert!(budget.take(1));
    }
}
