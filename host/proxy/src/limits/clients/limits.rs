//! Rate limiter: a token bucket per quantity that holds one minute's amount and is refilled continuously.
//!
//! Implements the generic cell rate algorithm (ITU-T I.371, annex A): the state is one number, the time at which the
//! bucket will be full. Pure: the time is passed in, in nanoseconds from any epoch.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MINUTE: u64 = 60_000_000_000;
const MICROSECOND: u64 = 1_000;

/// Maximum time until a bucket is full. It caps the debt of an implausibly long response.
const LONGEST_DEBT: u64 = 60 * MINUTE;

/// Limit per minute of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLimit {
    /// Requests.
    Requests,
    /// Tokens.
    Tokens,
}

/// Amount per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(pub(super) NonZeroU32);

impl Rate {
    /// Returns the refill time of an amount.
    fn cost(self, amount: u64) -> u64 {
        let cost = u128::from(amount) * u128::from(MINUTE) / u128::from(self.0.get());
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Returns the amount that is refilled in a time.
    fn amount(self, time: u64) -> u64 {
        let amount = u128::from(time) * u128::from(self.0.get()) / u128::from(MINUTE);
        u64::try_from(amount).unwrap_or(u64::MAX)
    }

    /// Returns the part of the rate that one of so many routers may use alone, at least 1.
    pub(crate) fn shared_by(self, routers: NonZeroU32) -> Self {
        Self(NonZeroU32::new(self.0.get() / routers).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns the amount per minute.
    pub(crate) fn per_minute(self) -> u32 {
        self.0.get()
    }
}

/// Level of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) left: u64,
    /// Time until it is full if nothing more is taken.
    pub(crate) full_in: Duration,
}

/// Amount taken from a bucket, as its refill time. It is the maximum that can be put back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken(u64);

/// Token bucket; a new one is full.
///
/// Routers of one fleet share it: each takes the amounts of the others from its own bucket as it learns of them.
#[derive(Debug, Default)]
pub(crate) struct RateBucket {
    full_at: AtomicU64,
    /// Refill time of all amounts that this router took and did not put back, since its start.
    own: AtomicU64,
    /// Time at which the bucket would be full if only this router had taken from it.
    own_full_at: AtomicU64,
}

/// Use of a bucket, for the other routers. The unit is a microsecond of refill, so that it is a share of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketUse {
    /// Total that this router took, since the bucket's beginning.
    pub total_us: u64,
    /// Time until the bucket is full.
    pub debt_us: u64,
    /// Number of the bucket's beginning, of which the total is.
    pub life: u64,
}

impl RateBucket {
    /// Takes an amount, at most one minute's worth. An error holds the time after which it is available.
    pub(crate) fn take(&self, rate: Rate, amount: u64, now: u64) -> Result<Taken, Duration> {
        let needed = rate.cost(amount).min(MINUTE);
        let taken = self.change(|full_at| {
            let full_at = full_at.max(now) + needed;
            (full_at - now <= MINUTE).then_some(full_at)
        });
        if taken.is_ok() {
            self.add_own(needed, now);
        }
        taken.map(|_| Taken(needed)).map_err(|full_at| {
            let debt = full_at.saturating_sub(now);
            Duration::from_nanos(debt.saturating_add(needed).saturating_sub(MINUTE))
        })
    }

    /// Changes the amount taken, even beyond the available level. The longest debt bounds an increase, and the amount
    /// taken bounds a decrease.
    pub(crate) fn settle(&self, taken: &mut Taken, rate: Rate, amount: u64, now: u64) {
        let cost = rate.cost(amount);
        if cost <= taken.0 {
            let surplus = taken.0 - cost;
            let _ = self.change(|full_at| Some(full_at.saturating_sub(surplus)));
            self.own.fetch_sub(surplus, Ordering::Relaxed);
            self.own_full_at
                .update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                    full_at.saturating_sub(surplus)
                });
            taken.0 = cost;
            return;
        }
        let owed = |full_at: u64| {
            let full_at = full_at.max(now);
            full_at
                .saturating_add(cost - taken.0)
                .min(full_at.max(now + LONGEST_DEBT))
        };
        if let Ok(before) = self.change(|full_at| Some(owed(full_at))) {
            let more = owed(before) - before.max(now);
            self.add_own(more, now);
            taken.0 += more;
        }
    }

    /// Returns an unused amount.
    pub(crate) fn give_back(&self, mut taken: Taken, rate: Rate, now: u64) {
        self.settle(&mut taken, rate, 0, now);
    }

    /// Takes what another router took; less than 0 is put back. The longest debt bounds it.
    pub(crate) fn take_elsewhere(&self, microseconds: i64, now: u64) {
        let change = microseconds.unsigned_abs().saturating_mul(MICROSECOND);
        let _ = self.change(|full_at| {
            Some(if microseconds < 0 {
                full_at.saturating_sub(change)
            } else {
                let full_at = full_at.max(now);
                full_at
                    .saturating_add(change)
                    .min(full_at.max(now + LONGEST_DEBT))
            })
        });
    }

    /// Raises the time until it is full to the value that another router has.
    pub(crate) fn adopt(&self, debt_us: u64, now: u64) {
        let debt = debt_us.saturating_mul(MICROSECOND).min(LONGEST_DEBT);
        let _ = self.change(|full_at| Some(full_at.max(now + debt)));
    }

    /// Lowers the time until it is full, at most to the one that this router's own use makes.
    pub(crate) fn lower(&self, microseconds: u64) {
        let less = microseconds.saturating_mul(MICROSECOND);
        let own = self.own_full_at.load(Ordering::Relaxed);
        let _ = self.change(|full_at| Some(full_at.saturating_sub(less).max(own.min(full_at))));
    }

    /// Returns its use, for the other routers.
    pub(crate) fn usage(&self, now: u64, life: u64) -> BucketUse {
        let debt = self.full_at.load(Ordering::Relaxed).saturating_sub(now);
        BucketUse {
            total_us: self.own.load(Ordering::Relaxed) / MICROSECOND,
            debt_us: debt / MICROSECOND,
            life,
        }
    }

    /// Returns the current level.
    pub(crate) fn level(&self, rate: Rate, now: u64) -> Level {
        let debt = self.full_at.load(Ordering::Relaxed).saturating_sub(now);
        Level {
            left: rate.amount(MINUTE.saturating_sub(debt)),
            full_in: Duration::from_nanos(debt),
        }
    }

    /// Records an amount as taken by this router.
    fn add_own(&self, amount: u64, now: u64) {
        self.own.fetch_add(amount, Ordering::Relaxed);
        self.own_full_at
            .update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                full_at.max(now).saturating_add(amount)
            });
    }

    /// Applies a change and returns the previous value. No other data is published with it.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(per_minute: u32) -> Rate {
        Rate(NonZeroU32::new(per_minute).unwrap())
    }

    const SECOND: u64 = MINUTE / 60;

    /// Returns the level of a bucket with this rate per minute.
    fn left(bucket: &RateBucket, rate: Rate) -> u64 {
        bucket.level(rate, 0).left
    }

    #[test]
    fn a_minutes_worth_may_come_at_once_and_then_as_it_refills() {
        let (bucket, rate) = (RateBucket::default(), rate(60));
        for _ in 0..60 {
            assert_eq!(bucket.take(rate, 1, 0), Ok(Taken(SECOND)));
        }
        assert_eq!(bucket.take(rate, 1, 0), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(rate, 1, SECOND - 1), Err(Duration::from_nanos(1)));
        assert_eq!(bucket.take(rate, 1, SECOND), Ok(Taken(SECOND)));
        assert_eq!(bucket.take(rate, 2, 2 * SECOND), Err(Duration::from_secs(1)));
        let level = bucket.level(rate, 11 * SECOND);
        assert_eq!((level.left, level.full_in), (10, Duration::from_secs(50)));
    }

    #[test]
    fn of_more_than_a_minutes_worth_a_full_bucket_gives_all_it_has_and_the_rest_is_paid_off() {
        let (bucket, rate) = (RateBucket::default(), rate(100));
        let mut taken = bucket.take(rate, 300, 0).unwrap();
        assert_eq!(taken, Taken(MINUTE));
        bucket.settle(&mut taken, rate, 300, 0);
        assert_eq!(bucket.take(rate, 1, 0), Err(Duration::from_millis(120_600)));
        assert!(bucket.take(rate, 300, 3 * MINUTE - 1).is_err());
        assert_eq!(bucket.take(rate, 300, 3 * MINUTE), Ok(Taken(MINUTE)));
    }

    #[test]
    fn tokens_given_back_to_the_bucket_can_be_taken_again() {
        let (bucket, rate) = (RateBucket::default(), rate(10));
        let mut taken = bucket.take(rate, 10, 0).unwrap();
        bucket.settle(&mut taken, rate, 6, 0);
        assert_eq!(left(&bucket, rate), 4);
        bucket.give_back(taken, rate, 0);
        assert_eq!(left(&bucket, rate), 10);
    }

    #[test]
    fn use_and_refunds_at_other_routers_change_the_bucket() {
        let (bucket, rate) = (RateBucket::default(), rate(60));
        bucket.take_elsewhere(20_000_000, 0);
        assert_eq!(left(&bucket, rate), 40);
        assert_eq!(
            bucket.usage(0, 3),
            BucketUse {
                total_us: 0,
                debt_us: 20_000_000,
                life: 3,
            }
        );
        bucket.take_elsewhere(-5_000_000, 0);
        assert_eq!(left(&bucket, rate), 45);
        let mut taken = bucket.take(rate, 10, 0).unwrap();
        bucket.settle(&mut taken, rate, 4, 0);
        assert_eq!(
            bucket.usage(0, 3),
            BucketUse {
                total_us: 4_000_000,
                debt_us: 19_000_000,
                life: 3,
            }
        );
        bucket.adopt(10_000_000, 0);
        assert_eq!(left(&bucket, rate), 41, "less than is known here");
        bucket.adopt(50_000_000, 0);
        assert_eq!(left(&bucket, rate), 10);
        bucket.take_elsewhere(i64::MAX, 0);
        assert_eq!(bucket.level(rate, 0).full_in, Duration::from_nanos(LONGEST_DEBT));
        bucket.lower(1_000_000);
        assert_eq!(
            bucket.level(rate, 0).full_in,
            Duration::from_nanos(LONGEST_DEBT - SECOND)
        );
    }

    #[test]
    fn a_debt_is_not_lowered_below_that_of_the_own_use() {
        let (bucket, rate) = (RateBucket::default(), rate(60));
        let mut taken = bucket.take(rate, 30, 0).unwrap();
        bucket.settle(&mut taken, rate, 70, 0);
        bucket.settle(&mut taken, rate, 50, 0);
        bucket.take_elsewhere(40_000_000, 0);
        bucket.lower(u64::MAX);
        let full_in = |now| bucket.level(rate, now).full_in;
        assert_eq!(full_in(20 * SECOND), Duration::from_secs(30));
        bucket.give_back(taken, rate, 20 * SECOND);
        bucket.lower(u64::MAX);
        assert_eq!(full_in(20 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_share_of_a_rate_is_at_least_one() {
        let routers = |count| NonZeroU32::new(count).unwrap();
        assert_eq!(rate(60).shared_by(routers(4)), rate(15));
        assert_eq!(rate(3).shared_by(routers(16)), rate(1));
    }

    #[test]
    fn a_claim_beyond_all_bounds_that_is_given_back_leaves_what_was_there() {
        let (bucket, rate) = (RateBucket::default(), rate(1));
        let mut used = Taken::default();
        bucket.settle(&mut used, rate, 30, 0);
        let mut huge = Taken::default();
        bucket.settle(&mut huge, rate, u64::MAX, 0);
        assert_eq!(bucket.level(rate, 0).full_in, Duration::from_nanos(LONGEST_DEBT));
        bucket.give_back(huge, rate, 0);
        assert_eq!(bucket.level(rate, 0).full_in, Duration::from_nanos(30 * MINUTE));
    }

    proptest! {
        /// Over any time, at most a full bucket and the refill pass. A client that waits for the returned time is
        /// admitted.
        #[test]
        fn never_more_than_the_rate_passes(
            per_minute in 1_u32..1_000_000,
            requests in prop::collection::vec((0_u64..20 * SECOND, 1_u64..2_000), 1..200),
        ) {
            let (bucket, rate) = (RateBucket::default(), rate(per_minute));
            let (mut now, mut given) = (0, 0_u64);
            for (pause, amount) in requests {
                now += pause;
                let amount = amount.min(per_minute.into());
                match bucket.take(rate, amount, now) {
                    Ok(_) => given += amount,
                    Err(wait) => {
                        let later = now + u64::try_from(wait.as_nanos()).unwrap();
                        prop_assert!(later > now);
                        let debt = bucket.full_at.load(Ordering::Relaxed) - later;
                        prop_assert!(debt + rate.cost(amount) <= MINUTE);
                    }
                }
                // Each cost is rounded down to a nanosecond.
                let most = rate.amount(MINUTE + now + 200) + 1;
                prop_assert!(given <= most, "{given} of {most} within {now} ns");
                prop_assert!(bucket.level(rate, now).left <= per_minute.into());
            }
        }

        /// Routers that learn late of each other's use exceed the limit by at most what the others took in that time.
        #[test]
        fn the_overshoot_of_several_routers_is_what_they_took_before_it_was_known(
            per_minute in 60_u32..10_000,
            delay in 0_u64..5 * SECOND,
            requests in prop::collection::vec((0_usize..3, 0_u64..SECOND, 1_u64..20), 1..300),
        ) {
            let (buckets, rate) = (std::array::from_fn::<_, 3, _>(|_| RateBucket::default()), rate(per_minute));
            let (mut now, mut taken) = (0, Vec::<(u64, usize, u64)>::new());
            let (mut known, mut overshoot) = (0, 0_u64);
            for (router, pause, amount) in requests {
                now += pause;
                while let Some((at, from, amount)) = taken.get(known).filter(|(at, ..)| at + delay <= now).copied() {
                    let microseconds = i64::try_from(rate.cost(amount) / MICROSECOND).unwrap();
                    for (to, bucket) in buckets.iter().enumerate() {
                        if to != from {
                            bucket.take_elsewhere(microseconds, at + delay);
                        }
                    }
                    known += 1;
                }
                if buckets[router].take(rate, amount, now).is_ok() {
                    // Amounts that other routers took and that have not reached this one.
                    let unseen = taken[known..].iter().filter(|(_, who, _)| *who != router);
                    overshoot = overshoot.max(unseen.map(|(.., amount)| amount).sum());
                    taken.push((now, router, amount));
                }
                let given: u64 = taken.iter().map(|(.., amount)| amount).sum();
                // Each cost is rounded down to a microsecond.
                let most = rate.amount(MINUTE + now + 300 * MICROSECOND) + 1 + overshoot;
                prop_assert!(given <= most, "{given} of {most} within {now} ns");
            }
        }

        /// Whatever is claimed and corrected later, the amount kept stays taken.
        #[test]
        fn nothing_is_put_back_that_was_not_taken(
            claims in prop::collection::vec((0_u64..2 * MINUTE, 0_u64..10_000_000, 0_u64..100_000), 1..50),
        ) {
            let (bucket, rate) = (RateBucket::default(), rate(60_000));
            let (mut now, mut kept) = (0, 0);
            let mut open = Vec::new();
            for (pause, claimed, truth) in claims {
                now += pause;
                let mut taken = bucket.take(rate, claimed, now).unwrap_or_default();
                if claimed % 2 == 0 {
                    bucket.settle(&mut taken, rate, claimed, now);
                }
                kept += taken.0;
                open.push((taken, truth));
                if truth % 3 == 0 {
                    let (mut taken, truth) = open.swap_remove(0);
                    kept -= taken.0;
                    bucket.settle(&mut taken, rate, truth, now);
                    kept += taken.0;
                }
                // The bucket is full at the earliest when the whole amount is refilled.
                prop_assert!(bucket.full_at.load(Ordering::Relaxed) >= kept);
            }
        }

        /// A corrected claim costs the same as a correct one.
        #[test]
        fn corrections_leave_what_the_truth_would_have_left(
            claims in prop::collection::vec((0_u64..100, 0_u64..100), 1..50),
        ) {
            let (bucket, settled, rate) = (RateBucket::default(), RateBucket::default(), rate(60_000));
            for (claimed, truth) in claims {
                let mut taken = bucket.take(rate, claimed, 0).unwrap();
                bucket.settle(&mut taken, rate, truth, 0);
                settled.settle(&mut Taken::default(), rate, truth, 0);
            }
            prop_assert_eq!(bucket.level(rate, 0), settled.level(rate, 0));
        }
    }
}
