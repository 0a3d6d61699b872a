//! Rate limiter for warnings of one kind in the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PERIOD_MS: u64 = 1_000;

/// Passes one event per second and counts the others.
#[derive(Debug)]
pub(crate) struct Throttle {
    since: Instant,
    /// Time in milliseconds from `since` at which the next event may pass.
    next_ms: AtomicU64,
    held_back: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            next_ms: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }
}

impl Throttle {
    /// Returns the number of events suppressed since the last one that passed, or `None` if this one is suppressed too.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(self.since.elapsed())
    }

    fn pass_at(&self, elapsed: Duration) -> Option<u64> {
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let next = self.next_ms.load(Ordering::Relaxed);
        let won = now >= next
            && self
                .next_ms
                .compare_exchange(
                    next,
                    now.saturating_add(PERIOD_MS),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if won {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_passes_and_reports_the_others() {
        let throttle = Throttle::default();
        let at = |ms| throttle.pass_at(Duration::from_millis(ms));
        assert_eq!([at(0), at(1), at(999)], [Some(0), None, None]);
        assert_eq!([at(1_000), at(1_500), at(2_500)], [Some(2), None, Some(1)]);
    }
}
