//! Token bucket for streams that a client opens and resets at once (CVE-2023-44487). Each one costs a request, but does
//! not count towards the limit on concurrent streams.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Age below which a reset stream is counted.
const QUICK: Duration = Duration::from_secs(1);
/// Refill interval: time in which one token is added.
const REFILL: Duration = Duration::from_secs(1);

/// Token bucket: resets take tokens; responses and time add them.
#[derive(Debug)]
pub(super) struct ResetBudget {
    most: u32,
    bucket: Mutex<ResetBucket>,
}

#[derive(Debug)]
struct ResetBucket {
    left: u32,
    filled_at: Instant,
}

impl ResetBudget {
    pub(super) fn new(most: u32, now: Instant) -> Self {
        let bucket = ResetBucket {
            left: most,
            filled_at: now,
        };
        Self {
            most,
            bucket: Mutex::new(bucket),
        }
    }

    /// Adds a token for a stream that was answered completely.
    pub(super) fn answered(&self) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.left = self.most.min(bucket.left + 1);
    }

    /// Takes a token for a stream that its client reset. Returns `false` if the budget is used up.
    pub(super) fn reset(&self, began: Instant, now: Instant) -> bool {
        if now.saturating_duration_since(began) >= QUICK {
            return true;
        }
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = now.saturating_duration_since(bucket.filled_at).as_secs() / REFILL.as_secs();
        if seconds > 0 {
            let back = u32::try_from(seconds).unwrap_or(u32::MAX);
            bucket.left = self.most.min(bucket.left.saturating_add(back));
            bucket.filled_at = now;
        }
        let Some(left) = bucket.left.checked_sub(1) else {
            return false;
        };
        bucket.left = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_resets_use_up_the_budget_and_answers_and_time_give_it_back() {
        let start = Instant::now();
        let budget = ResetBudget::new(2, start);
        assert!(budget.reset(start, start));
        assert!(budget.reset(start, start));
        assert!(!budget.reset(start, start));
        budget.answered();
        assert!(budget.reset(start, start));
        assert!(!budget.reset(start, start));
        let later = start + 5 * REFILL;
        assert!(budget.reset(later, later));
        assert!(budget.reset(later, later));
        assert!(!budget.reset(later, later));
    }

    #[test]
    fn a_stream_that_ran_for_a_while_may_be_cancelled() {
        let start = Instant::now();
        let budget = ResetBudget::new(0, start);
        assert!(budget.reset(start, start + QUICK));
        assert!(!budget.reset(start, start + QUICK / 2));
    }
}
