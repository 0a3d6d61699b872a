//! How much of something a client may use a minute: a bucket that holds a minute's worth and is refilled all the time.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A): the bucket is one number, the time at which it will be full
//! again. Pure: the time is told, in nanoseconds from any beginning.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MINUTE: u64 = 60_000_000_000;

/// A bucket is never further than this from being full: an answer that was wildly longer than it could be is forgiven.
const LONGEST_DEBT: u64 = 60 * MINUTE;

/// So much a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(pub(super) NonZeroU32);

impl Rate {
    /// The time that it takes to refill so much.
    fn cost(self, amount: u64) -> u64 {
        let cost = u128::from(amount) * u128::from(MINUTE) / u128::from(self.0.get());
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// What is refilled in that time.
    fn amount(self, time: u64) -> u64 {
        let amount = u128::from(time) * u128::from(self.0.get()) / u128::from(MINUTE);
        u64::try_from(amount).unwrap_or(u64::MAX)
    }

    /// How much a minute.
    pub(crate) fn per_minute(self) -> u32 {
        self.0.get()
    }
}

/// What is left of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) left: u64,
    /// Until it is full, if nobody takes any more.
    pub(crate) full_in: Duration,
}

/// A bucket; a new one is full.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes an amount, or tells after which time there will be as much.
    ///
    /// More than a minute's worth is given once the bucket is full, and is paid off by whoever comes after.
    pub(crate) fn take(&self, rate: Rate, amount: u64, now: u64) -> Result<(), Duration> {
        let cost = rate.cost(amount);
        let needed = cost.min(MINUTE);
        let taken = self.change(|full_at| {
            let debt = full_at.saturating_sub(now);
            (debt.saturating_add(needed) <= MINUTE).then(|| owed(full_at, cost, now))
        });
        taken.map_err(|full_at| {
            let debt = full_at.saturating_sub(now);
            Duration::from_nanos(debt.saturating_add(needed).saturating_sub(MINUTE))
        })
    }

    /// Takes an amount, whether it is there or not.
    pub(crate) fn charge(&self, rate: Rate, amount: u64, now: u64) {
        let cost = rate.cost(amount);
        let _ = self.change(|full_at| Some(owed(full_at, cost, now)));
    }

    /// Puts back what was taken in vain.
    pub(crate) fn give_back(&self, rate: Rate, amount: u64) {
        let cost = rate.cost(amount);
        let _ = self.change(|full_at| Some(full_at.saturating_sub(cost)));
    }

    /// What is left.
    pub(crate) fn level(&self, rate: Rate, now: u64) -> Level {
        let debt = self.full_at.load(Ordering::Relaxed).saturating_sub(now);
        Level {
            left: rate.amount(MINUTE.saturating_sub(debt)),
            full_in: Duration::from_nanos(debt),
        }
    }

    /// Nothing else is published with it.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> Result<(), u64> {
        let changed = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        changed.map(drop)
    }
}

/// When a bucket is full after that much more was taken.
fn owed(full_at: u64, cost: u64, now: u64) -> u64 {
    let full_at = full_at.max(now).saturating_add(cost);
    full_at.min(now.saturating_add(LONGEST_DEBT))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(per_minute: u32) -> Rate {
        Rate(NonZeroU32::new(per_minute).unwrap())
    }

    const SECOND: u64 = MINUTE / 60;

    #[test]
    fn a_minutes_worth_may_come_at_once_and_then_as_it_refills() {
        let (bucket, rate) = (Bucket::default(), rate(60));
        for _ in 0..60 {
            assert_eq!(bucket.take(rate, 1, 0), Ok(()));
        }
        assert_eq!(bucket.take(rate, 1, 0), Err(Duration::from_secs(1)));
        assert_eq!(bucket.take(rate, 1, SECOND - 1), Err(Duration::from_nanos(1)));
        assert_eq!(bucket.take(rate, 1, SECOND), Ok(()));
        assert_eq!(bucket.take(rate, 2, 2 * SECOND), Err(Duration::from_secs(1)));
        let level = bucket.level(rate, 11 * SECOND);
        assert_eq!((level.left, level.full_in), (10, Duration::from_secs(50)));
    }

    #[test]
    fn more_than_a_minutes_worth_is_given_to_a_full_bucket_and_paid_off() {
        let (bucket, rate) = (Bucket::default(), rate(100));
        assert_eq!(bucket.take(rate, 300, 0), Ok(()));
        assert_eq!(bucket.take(rate, 1, 0), Err(Duration::from_millis(120_600)));
        assert!(bucket.take(rate, 300, 3 * MINUTE - 1).is_err());
        assert_eq!(bucket.take(rate, 300, 3 * MINUTE), Ok(()));
    }

    #[test]
    fn what_was_given_back_can_be_taken_again() {
        let (bucket, rate) = (Bucket::default(), rate(10));
        assert_eq!(bucket.take(rate, 10, 0), Ok(()));
        bucket.give_back(rate, 4);
        assert_eq!(bucket.level(rate, 0).left, 4);
        bucket.charge(rate, 2, 0);
        assert_eq!(bucket.take(rate, 2, 0), Ok(()));
        assert!(bucket.take(rate, 1, 0).is_err());
    }

    #[test]
    fn no_debt_is_longer_than_an_hour() {
        let (bucket, rate) = (Bucket::default(), rate(1));
        bucket.charge(rate, u64::MAX, 5);
        assert_eq!(bucket.level(rate, 5).full_in, Duration::from_nanos(LONGEST_DEBT));
        bucket.give_back(rate, u64::MAX);
        assert_eq!(bucket.level(rate, 5).left, 1);
    }

    proptest! {
        /// Over any time, no more passes than a full bucket and what was refilled; and whoever waits as told gets in.
        #[test]
        fn never_more_than_the_rate_passes(
            per_minute in 1_u32..1_000_000,
            asks in prop::collection::vec((0_u64..20 * SECOND, 1_u64..2_000), 1..200),
        ) {
            let (bucket, rate) = (Bucket::default(), rate(per_minute));
            let (mut now, mut given) = (0, 0_u64);
            for (pause, amount) in asks {
                now += pause;
                let amount = amount.min(per_minute.into());
                match bucket.take(rate, amount, now) {
                    Ok(()) => given += amount,
                    Err(wait) => {
                        let later = now + u64::try_from(wait.as_nanos()).unwrap();
                        prop_assert!(later > now);
                        let debt = bucket.full_at.load(Ordering::Relaxed) - later;
                        prop_assert!(debt + rate.cost(amount) <= MINUTE);
                    }
                }
                // Costs are rounded down to a nanosecond each.
                let most = rate.amount(MINUTE + now + 200) + 1;
                prop_assert!(given <= most, "{given} of {most} within {now} ns");
                prop_assert!(bucket.level(rate, now).left <= per_minute.into());
            }
        }

        /// A claim that is put right later costs what it should have cost.
        #[test]
        fn corrections_leave_what_the_truth_would_have_left(
            claims in prop::collection::vec((0_u64..100, 0_u64..100), 1..50),
        ) {
            let (bucket, told, rate) = (Bucket::default(), Bucket::default(), rate(60_000));
            for (claimed, true_amount) in claims {
                bucket.charge(rate, claimed, 0);
                if claimed > true_amount {
                    bucket.give_back(rate, claimed - true_amount);
                } else {
                    bucket.charge(rate, true_amount - claimed, 0);
                }
                told.charge(rate, true_amount, 0);
            }
            prop_assert_eq!(bucket.level(rate, 0), told.level(rate, 0));
        }
    }
}
