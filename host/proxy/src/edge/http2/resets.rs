//! Budget of streams that a client opens and resets at once (CVE-2023-44487): each one costs a request, and the bound on
//! concurrent streams does not see it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A stream that was reset sooner after its beginning is counted.
const QUICK: Duration = Duration::from_secs(1);
/// In which one reset is given back.
const REFILL: Duration = Duration::from_secs(1);

/// A token bucket: resets take, answers and time give back.
#[derive(Debug)]
pub(super) struct ResetBudget {
    most: u32,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled_at: Instant,
}

impl ResetBudget {
    pub(super) fn new(most: u32, now: Instant) -> Self {
        let bucket = Bucket {
            left: most,
            filled_at: now,
        };
        Self {
            most,
            bucket: Mutex::new(bucket),
        }
    }

    /// Counts a stream that was answered to its end.
    pub(super) fn answered(&self) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.left = self.most.min(bucket.left + 1);
    }

    /// Counts a stream that its client reset. Returns false where the client has used up its budget.
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
