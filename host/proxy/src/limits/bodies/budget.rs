//! Memory budget of request bodies. A body takes bytes as they arrive and returns them when it is dropped.
//!
//! While there is room, taking bytes is one atomic addition. Otherwise a body waits, and the oldest is served first.
//! Partial bodies cannot deadlock: if only waiting bodies hold bytes, or the oldest one's time is up, the youngest fail
//! and return theirs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{BodiesFull, BodyTotals, pace_factor};

/// Time within which failed bodies return their bytes.
const TO_GIVE_BACK: Duration = Duration::from_secs(1);
/// Maximum size of a small body. A small body also stays below a share of the limit.
const SMALL: usize = 64 << 10;
const SMALL_SHARE: usize = 1 << 10;
/// Divisor: this fraction of the limit is reserved beyond the limit for small bodies.
const KEPT_PART: usize = 16;

/// Bytes of all bodies.
#[derive(Debug)]
pub(super) struct BodyBudget {
    limit: AtomicUsize,
    held: AtomicUsize,
    /// Number of waiting bodies. While it is 0, the lock is not taken.
    waiters: AtomicUsize,
    queue: Mutex<BodyQueue>,
}

/// Queue of waiting bodies.
#[derive(Debug, Default)]
struct BodyQueue {
    /// Waiting bodies by number.
    bodies: BTreeMap<u64, WaitingBody>,
    /// Bytes that the waiting bodies hold.
    held: usize,
}

#[derive(Debug)]
struct WaitingBody {
    needed: usize,
    held: usize,
    answer: oneshot::Sender<BudgetAnswer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BudgetAnswer {
    /// The body gets its bytes.
    Granted,
    /// The body fails, in favour of an older one.
    GiveWay,
}

/// Bytes held by one body.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<BodyBudget>,
    number: u64,
    held: usize,
    /// Remaining time that it may wait.
    patience: Duration,
}

/// Wait of a body, until this is dropped.
struct Wait<'b> {
    budget: &'b BodyBudget,
    number: u64,
    needed: usize,
    answer: oneshot::Receiver<BudgetAnswer>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self {
            limit: AtomicUsize::new(BodyTotals::default().bytes),
            held: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }
}

impl BodyBudget {
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
        self.serve_waiters();
    }

    /// Takes bytes if there is room.
    fn add(&self, bytes: usize) -> bool {
        self.add_within(bytes, self.limit.load(Ordering::SeqCst))
    }

    /// Takes bytes for a small body, from the reserve if necessary. Waiting large bodies do not block it.
    fn add_small(&self, held: usize, bytes: usize) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        let is_small = held.saturating_add(bytes) <= SMALL.min(limit / SMALL_SHARE);
        is_small && self.add_within(bytes, limit + limit / KEPT_PART)
    }

    fn add_within(&self, bytes: usize, limit: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= limit);
        let added = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        added.is_ok()
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
        self.serve_waiters();
    }

    fn serve_waiters(&self) {
        // A new waiter is counted before it reads the usage. So either it is seen here, or it sees the change.
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.settle(&mut self.lock());
        }
    }

    fn wait(&self, number: u64, needed: usize, held: usize) -> Wait<'_> {
        let (answer, receiver) = oneshot::channel();
        let mut queue = self.lock();
        queue.held += held;
        let waiter = WaitingBody { needed, held, answer };
        queue.bodies.insert(number, waiter);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        self.settle(&mut queue);
        Wait {
            budget: self,
            number,
            needed,
            answer: receiver,
        }
    }

    /// Serves the oldest bodies while there is room. If no byte would ever be returned, the youngest body fails.
    fn settle(&self, queue: &mut BodyQueue) {
        while let Some((&oldest, waiter)) = queue.bodies.first_key_value() {
            if self.add(waiter.needed) {
                self.answer(queue, oldest, BudgetAnswer::Granted);
                continue;
            }
            if queue.held >= self.held.load(Ordering::SeqCst) {
                let mut holders = queue.bodies.iter().rev().filter(|(_, body)| body.held > 0);
                // If there is none, the oldest body needs more than the whole limit.
                let youngest = holders.next().map_or(oldest, |(number, _)| *number);
                self.answer(queue, youngest, BudgetAnswer::GiveWay);
            }
            return;
        }
    }

    fn answer(&self, queue: &mut BodyQueue, number: u64, answer: BudgetAnswer) {
        if let Some(waiter) = queue.bodies.remove(&number) {
            queue.held -= waiter.held;
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            // Its receiver lives as long as it waits: see `Wait`.
            let _ = waiter.answer.send(answer);
        }
    }

    /// Fails bodies younger than `number` if that makes room for it. Returns `true` if it does.
    fn displace_younger(&self, number: u64, needed: usize) -> bool {
        let mut queue = self.lock();
        let wanted = self.held.load(Ordering::SeqCst).saturating_add(needed);
        let missing = wanted.saturating_sub(self.limit());
        let (mut freed, mut displaced) = (0, Vec::new());
        for (&younger, waiter) in queue.bodies.range(number + 1..).rev() {
            if freed >= missing {
                break;
            }
            if waiter.held > 0 {
                freed += waiter.held;
                displaced.push(younger);
            }
        }
        if freed < missing {
            return false;
        }
        for younger in displaced {
            self.answer(&mut queue, younger, BudgetAnswer::GiveWay);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, BodyQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut queue = self.budget.lock();
        if let Some(waiter) = queue.bodies.remove(&self.number) {
            queue.held -= waiter.held;
            self.budget.waiters.fetch_sub(1, Ordering::SeqCst);
            self.budget.settle(&mut queue);
        } else if self.answer.try_recv() == Ok(BudgetAnswer::Granted) {
            drop(queue);
            // The client left before the grant arrived.
            self.budget.release(self.needed);
        }
    }
}

impl Share {
    pub(super) fn new(budget: Arc<BodyBudget>, number: u64, patience: Duration) -> Self {
        Self {
            budget,
            number,
            held: 0,
            patience,
        }
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn pace_factor(&self) -> u32 {
        pace_factor(self.budget.held(), self.budget.limit())
    }

    /// Takes more bytes, and waits until there is room for them.
    pub(super) async fn take(&mut self, bytes: usize) -> Result<(), BodiesFull> {
        let is_free = self.budget.waiters.load(Ordering::SeqCst) == 0;
        let is_there = is_free && self.budget.add(bytes) || self.budget.add_small(self.held, bytes);
        if !is_there {
            self.wait(bytes).await?;
        }
        self.held += bytes;
        Ok(())
    }

    async fn wait(&mut self, bytes: usize) -> Result<(), BodiesFull> {
        if self.held.saturating_add(bytes) > self.budget.limit() {
            // The request exceeds the limit, so no wait helps.
            return Err(BodiesFull);
        }
        let began = Instant::now();
        let mut wait = self.budget.wait(self.number, bytes, self.held);
        let mut answer = timeout(self.patience, &mut wait.answer).await;
        if answer.is_err() && self.budget.displace_younger(self.number, bytes) {
            answer = timeout(TO_GIVE_BACK, &mut wait.answer).await;
        }
        self.patience = self.patience.saturating_sub(began.elapsed());
        match answer {
            Ok(Ok(BudgetAnswer::Granted)) => Ok(()),
            _ => Err(BodiesFull),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.held > 0 {
            self.budget.release(self.held);
        }
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
