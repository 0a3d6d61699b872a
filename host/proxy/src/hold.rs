//! A pool's queue: requests a policy wants held, asked again in its order when capacity frees.
//!
//! A release of capacity wakes one request. Whether the wake was of use only its policy can tell: a woken request
//! that is not sent passes it on to the next in order, until one is sent or all were asked since the release.
//!
//! The lock is taken for a map operation at a time and never held across a wait. Whoever releases capacity while
//! nobody is held pays two atomic operations.

use std::cmp::Ordering as Compare;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use routing::Hold;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The requests held for one pool.
#[derive(Debug)]
pub(crate) struct HoldQueue {
    waiting: Mutex<BTreeMap<Key, Waiting>>,
    /// Tickets out, waiting or just being asked again.
    held: AtomicUsize,
    arrivals: AtomicU64,
    /// Counts releases, so that one between a policy's answer and the wait for the next is not missed.
    releases: AtomicU64,
    /// Seconds from a ticket's taking to its end.
    waited: Histogram,
}

/// Ascending order, then first come, first served.
#[derive(Debug, Clone, Copy)]
struct Key {
    order: f64,
    arrival: u64,
}

#[derive(Debug)]
struct Waiting {
    /// Releases before its policy was last asked.
    seen: u64,
    wake: oneshot::Sender<()>,
}

/// The queue had no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The time in the queue is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueTimeout;

/// When a request was held first, and until when it may be; the same however often it enters the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    arrival: u64,
    deadline: Instant,
}

/// One request's place, kept over all its waits. Its end is the end of the time in the queue, for whatever reason.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<HoldQueue>,
    turn: Turn,
    since: Instant,
    /// It was woken and has not made use of it.
    owes_wake: bool,
}

/// A ticket's entry in the map, for one wait.
struct Entry<'a> {
    ticket: &'a mut Ticket,
    key: Key,
    woken: oneshot::Receiver<()>,
}

impl HoldQueue {
    /// An empty queue that tells `waited` how long each request was held, in seconds.
    pub(crate) fn new(waited: Histogram) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            held: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            waited,
        })
    }

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
            self.wake_next();
        }
    }

    /// The turn of a request that is held for the first time, for at most `patience` in all.
    pub(crate) fn turn(&self, patience: Duration) -> Turn {
        Turn {
            arrival: self.arrivals.fetch_add(1, Ordering::Relaxed),
            deadline: Instant::now() + patience,
        }
    }

    /// A place, if fewer than `limit` are held.
    pub(crate) fn enter(self: &Arc<Self>, turn: Turn, limit: usize) -> Result<Ticket, QueueFull> {
        let more = |held: usize| (held < limit).then_some(held + 1);
        self.held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .map_err(|_| QueueFull)?;
        Ok(Ticket {
            queue: Arc::clone(self),
            turn,
            since: Instant::now(),
            owes_wake: false,
        })
    }

    /// Wakes the first in order that was not asked since the last release. That each is asked once a release
    /// bounds the chain of those that pass their wake on.
    fn wake_next(&self) {
        let mut waiting = self.waiting();
        let releases = self.releases();
        let next = waiting.iter().find(|(_, one)| one.seen < releases);
        let next = next.map(|(key, _)| *key);
        // One whose wait is over already has given up its entry, so the wake always lands.
        if let Some(one) = next.and_then(|key| waiting.remove(&key)) {
            let _ = one.wake.send(());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Key, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// How much longer it may be held.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Ticket {
    /// Waits until it is time to ask the policy again: capacity was freed (also since `seen`, see
    /// [`HoldQueue::releases`]) and this request is the next in order, or `ask_again_ms` have passed.
    pub(crate) async fn wait(&mut self, hold: Hold, seen: u64) -> Result<(), QueueTimeout> {
        let now = Instant::now();
        let deadline = self.turn.deadline;
        if now >= deadline {
            return Err(QueueTimeout);
        }
        let ask_again = now + Duration::from_millis(u64::from(hold.ask_again_ms));
        let mut entry = self.enlist(hold.order, seen);
        if entry.ticket.queue.releases() != seen {
            return Ok(());
        }
        entry.ticket.pass_wake_on();
        match tokio::time::timeout_at(ask_again.min(deadline), &mut entry.woken).await {
            Ok(_) => entry.ticket.owes_wake = true,
            Err(_) if Instant::now() >= deadline => return Err(QueueTimeout),
            Err(_) => {}
        }
        Ok(())
    }

    /// The request has found a worker: the wake, if there was one, was of use.
    pub(crate) fn sent(mut self) {
        self.owes_wake = false;
    }

    fn enlist(&mut self, order: f64, seen: u64) -> Entry<'_> {
        let (wake, woken) = oneshot::channel();
        let key = Key {
            // Adding 0.0 makes of -0.0 the 0.0 it equals.
            order: order + 0.0,
            arrival: self.turn.arrival,
        };
        self.queue.waiting().insert(key, Waiting { seen, wake });
        Entry {
            ticket: self,
            key,
            woken,
        }
    }

    fn pass_wake_on(&mut self) {
        if std::mem::take(&mut self.owes_wake) {
            self.queue.wake_next();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.held.fetch_sub(1, Ordering::SeqCst);
        self.queue.waited.observe(self.since.elapsed().as_secs_f64());
        self.pass_wake_on();
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.ticket.queue.waiting().remove(&self.key);
        // Woken while it was leaving, it has the wake all the same.
        self.ticket.owes_wake |= self.woken.try_recv().is_ok();
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
mod tests;
