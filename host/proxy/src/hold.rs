//! A pool's queue: requests a policy wants held, asked again in its order when capacity frees.
//!
//! The lock is taken for a map operation at a time and never held across a wait. Whoever releases capacity while
//! nobody is held pays two atomic operations.

use std::cmp::Ordering as Compare;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::Hold;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The requests held for one pool.
#[derive(Debug, Default)]
pub(crate) struct HoldQueue {
    waiting: Mutex<BTreeMap<Key, oneshot::Sender<()>>>,
    /// Tickets out, waiting or just being asked again.
    held: AtomicUsize,
    arrivals: AtomicU64,
    /// Counts releases, so that one between a policy's answer and the wait for the next is not missed.
    releases: AtomicU64,
}

/// Ascending order, then first come, first served.
#[derive(Debug, Clone, Copy)]
struct Key {
    order: f64,
    arrival: u64,
}

/// The queue had no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The time in the queue is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueTimeout;

/// One request's place, kept over all its waits.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<HoldQueue>,
    arrival: u64,
    since: Instant,
    deadline: Instant,
}

/// A ticket's entry in the map, for one wait.
struct Entry<'a> {
    queue: &'a HoldQueue,
    key: Key,
    asked: bool,
}

impl HoldQueue {
    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// To be noted before the policy is asked and handed to [`Ticket::wait`].
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// Capacity was freed in the pool: the first in order is asked again.
    pub(crate) fn release(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        if self.len() > 0 {
            self.wake_first();
        }
    }

    /// A place for at most `patience` in all, if fewer than `limit` are held.
    pub(crate) fn enter(self: &Arc<Self>, limit: usize, patience: Duration) -> Result<Ticket, QueueFull> {
        let more = |held: usize| (held < limit).then_some(held + 1);
        self.held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .map_err(|_| QueueFull)?;
        let since = Instant::now();
        Ok(Ticket {
            queue: Arc::clone(self),
            arrival: self.arrivals.fetch_add(1, Ordering::Relaxed),
            since,
            deadline: since + patience,
        })
    }

    fn wake_first(&self) {
        let mut waiting = self.waiting();
        // One whose wait is over already has given up its entry, so the wake always lands.
        if let Some((_, first)) = waiting.pop_first() {
            let _ = first.send(());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Key, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Waits until it is time to ask the policy again: capacity was freed (also since `seen`, see
    /// [`HoldQueue::releases`]) and this request is the first in order, or `ask_again_ms` have passed.
    pub(crate) async fn wait(&self, hold: Hold, seen: u64) -> Result<(), QueueTimeout> {
        let now = Instant::now();
        if now >= self.deadline {
            return Err(QueueTimeout);
        }
        let ask_again = now + Duration::from_millis(u64::from(hold.ask_again_ms));
        let (send, woken) = oneshot::channel();
        // Adding 0.0 makes of -0.0 the 0.0 it equals.
        let key = Key {
            order: hold.order + 0.0,
            arrival: self.arrival,
        };
        self.queue.waiting().insert(key, send);
        let mut entry = Entry {
            queue: &self.queue,
            key,
            asked: false,
        };
        if self.queue.releases() != seen {
            return Ok(());
        }
        let woken = tokio::time::timeout_at(ask_again.min(self.deadline), woken).await;
        entry.asked = woken.is_ok();
        if woken.is_err() && Instant::now() >= self.deadline {
            return Err(QueueTimeout);
        }
        Ok(())
    }

    /// Time since it was taken.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.held.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let was_waiting = self.queue.waiting().remove(&self.key).is_some();
        // Woken, but gone or out of time before it could ask: the next shall.
        if !was_waiting && !self.asked {
            self.queue.wake_first();
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Compare {
        self.order
            .total_cmp(&other.order)
            .then(self.arrival.cmp(&other.arrival))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Compare> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Compare::Equal
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn hold(order: f64) -> Hold {
        Hold {
            order,
            ask_again_ms: 10_000,
        }
    }

    #[tokio::test]
    async fn releases_wake_in_order_then_by_arrival() {
        let queue = Arc::<HoldQueue>::default();
        let tickets: Vec<_> = (0..3).map(|_| queue.enter(3, LONG).unwrap()).collect();
        let mut late = pin!(tickets[0].wait(hold(5.0), 0));
        let mut second = pin!(tickets[2].wait(hold(1.0), 0));
        let mut first = pin!(tickets[1].wait(hold(1.0), 0));
        assert!(poll!(&mut late).is_pending());
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_pending());
        queue.release();
        assert!(poll!(&mut late).is_pending());
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_ready());
        queue.release();
        assert!(poll!(&mut second).is_ready());
        assert!(poll!(&mut late).is_pending());
    }

    #[tokio::test]
    async fn a_release_while_the_policy_was_asked_is_not_missed() {
        let queue = Arc::<HoldQueue>::default();
        let seen = queue.releases();
        queue.release();
        let ticket = queue.enter(1, LONG).unwrap();
        assert_eq!(ticket.wait(hold(0.0), seen).await, Ok(()));
        assert!(queue.waiting().is_empty());
    }

    #[tokio::test]
    async fn a_wake_of_one_who_left_goes_to_the_next() {
        let queue = Arc::<HoldQueue>::default();
        let (gone, next) = (queue.enter(2, LONG).unwrap(), queue.enter(2, LONG).unwrap());
        let mut waits = Box::pin(gone.wait(hold(0.0), 0));
        let mut next = pin!(next.wait(hold(1.0), 0));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut next).is_pending());
        queue.release();
        drop(waits);
        assert!(poll!(&mut next).is_ready());
    }

    #[tokio::test]
    async fn the_queue_is_bounded_in_length_and_time() {
        let queue = Arc::<HoldQueue>::default();
        let ticket = queue.enter(1, Duration::ZERO).unwrap();
        assert_eq!(queue.enter(1, LONG).unwrap_err(), QueueFull);
        assert_eq!(ticket.wait(hold(0.0), 0).await, Err(QueueTimeout));
        drop(ticket);
        assert_eq!(queue.len(), 0);
        let ticket = queue.enter(1, LONG).unwrap();
        let soon = Hold {
            order: 0.0,
            ask_again_ms: 1,
        };
        assert_eq!(
            ticket.wait(soon, 0).await,
            Ok(()),
            "asked again when the time is up"
        );
    }
}
