//! Memory budget of messages between socket and decoder: reserved before they are read, released when they are
//! dropped.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::mailbox::FeedNotifier;
use crate::zmtp::FeedLimits;

/// Share of the total below which queued messages are dropped.
const SCARCE: usize = 4;

/// Memory shared by all feeds.
#[derive(Debug, Clone)]
pub(super) struct MemoryBudget {
    total: Arc<Semaphore>,
    limit: usize,
    notifier: Arc<FeedNotifier>,
}

/// Memory share of one feed, and the total behind it.
#[derive(Debug, Clone)]
pub(super) struct FeedBudget {
    own: Arc<Semaphore>,
    all: MemoryBudget,
}

/// Memory of a message; dropping it releases the memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryCharge {
    own: Option<OwnedSemaphorePermit>,
    all: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    pub(super) fn new(limits: FeedLimits, notifier: Arc<FeedNotifier>) -> Self {
        let limit = limits.total.max(limits.largest_message());
        Self {
            total: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            limit,
            notifier,
        }
    }

    /// Returns the bytes that messages hold now.
    pub(super) fn used(&self) -> usize {
        self.limit.saturating_sub(self.total.available_permits())
    }

    /// Returns `true` if so little memory is left that queued messages should be dropped.
    pub(super) fn is_scarce(&self) -> bool {
        self.total.available_permits() < self.limit / SCARCE
    }

    pub(super) fn allowance(&self, limits: FeedLimits) -> FeedBudget {
        let own = limits.feed.max(limits.largest_message());
        FeedBudget {
            own: Arc::new(Semaphore::new(own.min(Semaphore::MAX_PERMITS))),
            all: self.clone(),
        }
    }
}

impl FeedBudget {
    /// Waits until the bytes can be reserved.
    pub(super) async fn take(&self, bytes: usize) -> MemoryCharge {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // The semaphores are never closed: waiting ends with a permit.
        let own = Arc::clone(&self.own).acquire_many_owned(bytes).await.ok();
        let total = Arc::clone(&self.all.total);
        let all = match total.try_acquire_many_owned(bytes) {
            Ok(all) => Some(all),
            Err(_) => {
                self.all.notifier.notify_memory();
                Arc::clone(&self.all.total).acquire_many_owned(bytes).await.ok()
            }
        };
        MemoryCharge { own, all }
    }
}

impl MemoryCharge {
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_none() && self.all.is_none()
    }

    /// Merges the other charge.
    pub(super) fn add(&mut self, other: Self) {
        join(&mut self.own, other.own);
        join(&mut self.all, other.all);
    }
}

fn join(one: &mut Option<OwnedSemaphorePermit>, other: Option<OwnedSemaphorePermit>) {
    match (one.as_mut(), other) {
        (Some(one), Some(other)) => one.merge(other),
        (None, other) => *one = other,
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(feed: usize, total: usize) -> FeedLimits {
        FeedLimits {
            frame: 10,
            message: 10,
            feed,
            total,
        }
    }

    fn largest() -> usize {
        limits(0, 0).largest_message()
    }

    #[tokio::test]
    async fn a_feed_waits_for_its_own_messages_and_not_for_those_of_others() {
        let limits = limits(largest(), 10 * largest());
        let budget = MemoryBudget::new(limits, Arc::default());
        let (one, other) = (budget.allowance(limits), budget.allowance(limits));
        let held = one.take(largest()).await;
        let mut waits = Box::pin(one.take(1));
        assert!(futures_util::poll!(&mut waits).is_pending());
        let free = other.take(largest()).await;
        assert_eq!(budget.used(), 2 * largest());
        drop(held);
        assert!(futures_util::poll!(&mut waits).is_ready());
        drop(free);
    }

    #[tokio::test]
    async fn all_feeds_together_hold_no_more_than_the_total() {
        let limits = limits(4 * largest(), 2 * largest());
        let notifier = Arc::<FeedNotifier>::default();
        let budget = MemoryBudget::new(limits, Arc::clone(&notifier));
        let held = budget.allowance(limits).take(2 * largest()).await;
        assert!(budget.is_scarce());
        let other = budget.allowance(limits);
        let mut waits = Box::pin(other.take(1));
        assert!(futures_util::poll!(&mut waits).is_pending());
        // The notification requests that queued messages are dropped.
        assert!(notifier.wait(None).is_pressed);
        drop(held);
        assert!(futures_util::poll!(&mut waits).is_ready());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_charge_that_was_added_is_given_back_with_the_other() {
        let limits = limits(0, 0);
        let budget = MemoryBudget::new(limits, Arc::default());
        let allowance = budget.allowance(limits);
        let mut charge = MemoryCharge::default();
        assert!(charge.is_empty());
        charge.add(allowance.take(3).await);
        charge.add(allowance.take(4).await);
        assert_eq!(budget.used(), 7);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }
}
