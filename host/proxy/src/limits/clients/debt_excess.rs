//! Excess of a bucket's debt over that of the other routers.
//!
//! Use that comes late is charged to a bucket that was refilled meanwhile, or was full. Its debt is then above that of
//! the other routers, and stays so while they admit what is refilled: this router would refuse the client for good.

use super::limits::BucketUse;

/// Microseconds for which a debt must be above that of all others, and nothing admitted here.
const WATCHED_US: u64 = 5_000_000;

/// Excess of a debt over the highest one that other routers state.
///
/// A router that admits nothing of a client has taken nothing that the others may not have heard of. So an excess that
/// lasts over all of their messages is an error, rather than use on its way.
#[derive(Debug, Clone, Copy, Default)]
pub struct DebtExcess(Option<WatchedExcess>);

#[derive(Debug, Clone, Copy)]
struct WatchedExcess {
    since_us: u64,
    /// Total that this router took.
    own_us: u64,
    least_us: u64,
}

impl DebtExcess {
    /// Records the own use beside the debt that another router has. Returns the amount by which the own debt is too high.
    pub(super) fn compare(&mut self, now_us: u64, own: BucketUse, debt_elsewhere_us: u64) -> Option<u64> {
        let excess_us = own.debt_us.saturating_sub(debt_elsewhere_us);
        if excess_us == 0 {
            self.0 = None;
            return None;
        }
        let watched = self.0.filter(|watched| watched.own_us == own.total_us);
        let mut watched = watched.unwrap_or(WatchedExcess {
            since_us: now_us,
            own_us: own.total_us,
            least_us: excess_us,
        });
        watched.least_us = watched.least_us.min(excess_us);
        let is_over = now_us.saturating_sub(watched.since_us) >= WATCHED_US;
        self.0 = (!is_over).then_some(watched);
        is_over.then_some(watched.least_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Returns what is dropped of a debt of 85 s over 6 s, by the own total and the debt elsewhere of each second.
    fn dropped(own: impl Fn(u64) -> u64, elsewhere_s: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut excess = DebtExcess::default();
        let compared = (0..=6).filter_map(|second| {
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
    fn nothing_is_dropped_while_this_router_admits() {
        assert!(dropped(|second| second, |_| 60).is_empty());
    }
}
