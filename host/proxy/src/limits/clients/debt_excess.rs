//! Excess of a bucket's debt over that of the other routers.
//!
//! Use that comes late is charged to a bucket that was refilled meanwhile, or was full. Its debt is then above that
//! of the other routers. While those use all that is refilled, it stays there: this router would refuse the client
//! for good.

use std::time::Duration;

use super::limits::BucketUse;

/// Time for which a debt must be above that of all others, and nothing admitted here, at least.
const LEAST_WATCH: Duration = Duration::from_secs(5);

/// Excess of a debt over the highest one that other routers state.
///
/// A router that admits nothing of a client has taken nothing that may not have reached the others. So an excess that
/// lasts over all of their messages is an error, rather than use on its way. Those after a pause may be old, so that
/// the time begins again.
#[derive(Debug, Clone, Copy)]
pub struct DebtExcess {
    watch_us: u64,
    watched: Option<WatchedExcess>,
}

#[derive(Debug, Clone, Copy)]
struct WatchedExcess {
    since_us: u64,
    /// Time of the newest message.
    heard_us: u64,
    /// Total that this router took.
    own_us: u64,
    least_us: u64,
}

impl DebtExcess {
    /// Returns the excess of a debt that was not compared. `answered_after`: time after which the others' messages have
    /// the use of this router.
    #[must_use]
    pub fn new(answered_after: Duration) -> Self {
        let watch = answered_after.max(LEAST_WATCH);
        Self {
            watch_us: u64::try_from(watch.as_micros()).unwrap_or(u64::MAX),
            watched: None,
        }
    }

    /// Records the own use beside the debt that another router has. Returns the amount by which the own debt is too
    /// high.
    pub(super) fn compare(&mut self, now_us: u64, own: BucketUse, debt_elsewhere_us: u64) -> Option<u64> {
        let excess_us = own.debt_us.saturating_sub(debt_elsewhere_us);
        if excess_us == 0 {
            self.watched = None;
            return None;
        }
        let watched = self.watched.filter(|watched| {
            let has_paused = now_us.saturating_sub(watched.heard_us) > self.watch_us / 2;
            !has_paused && watched.own_us == own.total_us
        });
        let mut watched = watched.unwrap_or(WatchedExcess {
            since_us: now_us,
            heard_us: now_us,
            own_us: own.total_us,
            least_us: excess_us,
        });
        watched.least_us = watched.least_us.min(excess_us);
        watched.heard_us = now_us;
        let is_over = now_us.saturating_sub(watched.since_us) >= self.watch_us;
        self.watched = (!is_over).then_some(watched);
        is_over.then_some(watched.least_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Returns the amounts that a debt of 85 s loses in 6 s, by the own total and the debt elsewhere of each second.
    fn dropped(own: impl Fn(u64) -> u64, elsewhere_s: impl Fn(u64) -> u64) -> Vec<u64> {
        dropped_at(Duration::ZERO, 0..=6, own, elsewhere_s)
    }

    /// Returns the amounts that a debt of 85 s loses at messages of these seconds.
    fn dropped_at(
        answered_after: Duration,
        seconds: impl IntoIterator<Item = u64>,
        own: impl Fn(u64) -> u64,
        elsewhere_s: impl Fn(u64) -> u64,
    ) -> Vec<u64> {
        let mut excess = DebtExcess::new(answered_after);
        let compared = seconds.into_iter().filter_map(|second| {
            let own = BucketUse {
                total_us: own(second),
                debt_us: 85 * SECOND,
                life: 0,
            };
            excess.compare(second * SECOND, own, elsewhere_s(second) * SECOND)
        });
        compared.collect()
    }

    #[test]
    fn the_least_excess_over_all_messages_of_five_seconds_is_dropped() {
        assert_eq!(dropped(|_| 7, |second| 60 + second % 3), [23 * SECOND]);
    }

    #[test]
    fn a_debt_that_another_router_has_too_stays() {
        assert!(dropped(|_| 7, |_| 85).is_empty());
        assert!(dropped(|_| 7, |second| if second == 3 { 90 } else { 0 }).is_empty());
    }

    #[test]
    fn nothing_is_dropped_before_the_others_can_have_the_use_of_this_router() {
        let answered_after = Duration::from_secs(23);
        let dropped_by = |second| dropped_at(answered_after, (0..=second).step_by(10), |_| 7, |_| 60);
        assert!(dropped_by(20).is_empty());
        assert_eq!(dropped_by(30), [25 * SECOND]);
    }

    #[test]
    fn messages_before_and_after_a_pause_drop_nothing() {
        let dropped_by = |seconds: &[u64]| dropped_at(Duration::ZERO, seconds.iter().copied(), |_| 7, |_| 60);
        assert!(dropped_by(&[0, 6, 12, 13, 14, 15, 16]).is_empty());
        assert_eq!(dropped_by(&[0, 6, 12, 13, 14, 15, 16, 17]), [25 * SECOND]);
    }

    #[test]
    fn nothing_is_dropped_while_this_router_admits() {
        assert!(dropped(|second| second, |_| 60).is_empty());
    }
}
