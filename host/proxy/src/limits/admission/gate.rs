//! A pool's budget and its queue.
//!
//! Whoever finds room goes in at the cost of the budget's atomics. Whoever does not gets a place in the line, and is let in by
//! whoever makes room: as many as fit, each with its permit in its hand, so that nobody who comes later takes it.
//!
//! One that a policy holds is asked again for a release of capacity. Whether that was of use only its policy can tell. One
//! that is held again passes the release on to the next in order, while that is worth asking (see [`CapacityEvent`]). One that is sent
//! does so too, since a release may have made room for more than one, and one that leaves; for those the count begins anew.
//!
//! The lock is taken for an operation on the line at a time and never held across a wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::{
    Budget, BudgetLimits, BudgetUse, CapacityEvent, ClassCounts, DrainRate, FairQueue, Held, WorkerId,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::capacity::Capacity;
use super::metrics::AdmissionMetrics;
use super::permit::{Charge, Permit};
use super::ticket::{QueueEntry, QueuePosition};
use super::wish::AdmissionRequest;

/// Bounds of `Retry-After`.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How often a budget that follows the workers is reckoned anew, in microseconds.
const RECKON_EVERY_US: u64 = 500_000;

/// The budget and the queue of a pool. It stays over all snapshots.
#[derive(Debug)]
pub(crate) struct AdmissionController {
    budget: Budget,
    /// Whether anything is counted at all.
    counts: AtomicBool,
    /// Whether somebody in the line is before whoever comes.
    is_blocked: AtomicBool,
    line: Mutex<Line>,
    /// Tickets out, waiting or just being asked again.
    held: AtomicUsize,
    arrivals: AtomicU64,
    /// Counts releases, so that one between a policy's answer and the wait for the next is not missed.
    releases: AtomicU64,
    /// Whether tenants are told apart.
    has_tenants: AtomicBool,
    /// What the limits are made of.
    capacity: Mutex<Capacity>,
    /// When to make them anew; never, where they do not follow the workers.
    reckon_at_us: AtomicU64,
    started: Instant,
    pub(super) metrics: AdmissionMetrics,
}

#[derive(Debug, Default)]
struct Line {
    waiting: FairQueue<Waiter>,
    drain: DrainRate,
}

/// What somebody who waits is told with.
#[derive(Debug)]
struct Waiter {
    wake: oneshot::Sender<WakeReason>,
    output: u64,
    weight: f64,
}

/// What somebody who waits is told.
#[derive(Debug)]
pub(super) enum WakeReason {
    /// To go in.
    In {
        permit: Permit,
        /// The release that its policy is asked for.
        release: Option<CapacityEvent>,
    },
    /// To go, since somebody more important has its place.
    Shed,
}

/// The queue has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl AdmissionController {
    pub(crate) fn new(metrics: AdmissionMetrics) -> Arc<Self> {
        Arc::new(Self {
            budget: Budget::default(),
            counts: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            line: Mutex::default(),
            held: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            has_tenants: AtomicBool::new(false),
            capacity: Mutex::default(),
            reckon_at_us: AtomicU64::new(u64::MAX),
            started: Instant::now(),
            metrics,
        })
    }

    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// To be noted before the policy is asked and handed to [`QueueEntry::hold`].
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// What is taken of the budget, and what may be.
    pub(crate) fn budget(&self) -> (BudgetUse, BudgetLimits) {
        (self.budget.used(), self.budget.limits())
    }

    /// What waits for each worker: see [`FairQueue::ahead`].
    pub(crate) fn ahead(&self, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        self.line().waiting.ahead(workers, most)
    }

    /// How many wait by kind of class.
    pub(crate) fn counts(&self) -> ClassCounts {
        self.line().waiting.counts()
    }

    /// Puts budgets in force; whoever has room then is let in. Those that a policy holds keep the workers they came to.
    pub(crate) fn put_in_force(self: &Arc<Self>, capacity: Capacity) {
        let follows = capacity.follows_workers();
        self.counts.store(capacity.is_any(), Ordering::SeqCst);
        *self.capacity() = capacity;
        let next = if follows { 0 } else { u64::MAX };
        self.reckon_at_us.store(next, Ordering::SeqCst);
        self.recompute_limits();
        self.admit_ready(None);
    }

    /// Capacity was freed in the pool.
    pub(crate) fn release(self: &Arc<Self>, release: CapacityEvent) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        if self.len() > 0 {
            self.reckon_if_due();
            self.admit_ready(Some(release));
        }
    }

    /// The turn of a request that waits for the first time, at most until then.
    pub(super) fn turn(&self, deadline: Instant) -> QueuePosition {
        QueuePosition {
            number: self.arrivals.fetch_add(1, Ordering::Relaxed),
            deadline,
        }
    }

    /// Lets a request in that has not waited, where there is room and nobody before it. None is taken where nothing is counted.
    pub(super) fn pass(
        self: &Arc<Self>,
        wish: impl FnOnce() -> AdmissionRequest,
    ) -> Result<Option<Permit>, AdmissionRequest> {
        if !self.counts.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.reckon_if_due();
        let wish = wish();
        if self.is_blocked.load(Ordering::SeqCst) || !self.budget.take(wish.tokens()) {
            return Err(wish);
        }
        let charged = self.charge(&wish);
        Ok(Some(Permit {
            gate: Arc::clone(self),
            tokens: wish.tokens(),
            output: wish.output,
            charged,
            is_used: false,
        }))
    }

    /// Tenants are only counted once there is one.
    fn charge(&self, wish: &AdmissionRequest) -> Option<Charge> {
        if wish.tenant.is_empty() && !self.has_tenants.load(Ordering::Relaxed) {
            return None;
        }
        self.has_tenants.store(true, Ordering::Relaxed);
        self.line().waiting.pass(&wish.tenant, wish.share());
        Some(Charge {
            tenant: Arc::clone(&wish.tenant),
            weight: wish.weight,
            share: wish.share(),
        })
    }

    pub(super) fn correct(&self, tenant: &Arc<str>, share: f64) {
        self.line().waiting.correct(tenant, share);
    }

    /// A permit is over. One that was of no use frees nothing that a policy could not have had already.
    pub(super) fn give_back(self: &Arc<Self>, tokens: u64, was_used: bool) {
        self.untake(tokens);
        if tokens == UNCOUNTED {
            return;
        }
        // When the worker's load was given back, just before, the budget was what kept everybody out.
        if was_used && self.is_blocked.load(Ordering::SeqCst) {
            self.release(CapacityEvent::anywhere());
        } else if self.len() > 0 {
            self.admit_ready(None);
        }
    }

    /// A place for one of that class, if fewer than `limit` are held or one may be shed for it.
    pub(super) fn enter(
        self: &Arc<Self>,
        turn: QueuePosition,
        limit: usize,
        class: i32,
    ) -> Result<QueueEntry, QueueFull> {
        let more = |held: usize| (held < limit).then_some(held + 1);
        let counted = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        if counted.is_err() && !self.shed_for(class) {
            // Its look at the budget may have kept somebody from going in.
            self.admit_ready(None);
            return Err(QueueFull);
        }
        Ok(QueueEntry::new(Arc::clone(self), turn))
    }

    /// Whether a newcomer has to wait, and as many wait as may.
    pub(super) fn is_crowded(&self, limit: usize) -> bool {
        self.counts.load(Ordering::Relaxed) && self.is_blocked.load(Ordering::SeqCst) && self.len() >= limit
    }

    /// Whether somebody would give its place up for one of that class.
    pub(super) fn may_shed_for(&self, class: i32) -> bool {
        self.line().waiting.victim(class).is_some()
    }

    /// Has somebody less important give its place up. Whether there was somebody.
    fn shed_for(&self, class: i32) -> bool {
        let mut line = self.line();
        let victim = line.waiting.victim(class);
        let shed = victim.and_then(|number| line.waiting.remove(number));
        // One whose wait is over already has given up its entry, so what it is told always lands.
        shed.is_some_and(|(_, tell)| tell.wake.send(WakeReason::Shed).is_ok())
    }

    /// A ticket is over.
    pub(super) fn leave(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Into the line; none, where there was a release after a policy was asked.
    pub(super) fn enqueue(
        &self,
        turn: QueuePosition,
        wish: &AdmissionRequest,
        held: Option<Held>,
    ) -> Option<oneshot::Receiver<WakeReason>> {
        let mut line = self.line();
        let releases = self.releases();
        if held.is_some_and(|held| held.asked_at.is_some_and(|seen| seen != releases)) {
            return None;
        }
        if line.waiting.is_empty() {
            line.drain.emptied();
        }
        if !wish.tenant.is_empty() {
            self.has_tenants.store(true, Ordering::Relaxed);
        }
        let (wake, woken) = oneshot::channel();
        let start_by = turn.deadline.min(wish.start_by(self.started));
        let tell = Waiter {
            wake,
            output: wish.output,
            weight: wish.weight,
        };
        let one = wish.waiting(held, self.micros(start_by));
        line.waiting.insert(turn.number, one, tell);
        Some(woken)
    }

    /// It does not wait any more. Whether it still did.
    pub(super) fn dequeue(self: &Arc<Self>, turn: QueuePosition) -> bool {
        let gone = self.line().waiting.remove(turn.number);
        if gone.is_some() {
            self.admit_ready(None);
        }
        gone.is_some()
    }

    /// One that a policy holds is to be asked again now.
    pub(super) fn ask_again(self: &Arc<Self>, turn: QueuePosition) {
        self.line().waiting.make_due(turn.number);
        self.admit_ready(None);
    }

    /// One of those that waited goes to a worker.
    pub(super) fn sent(&self) {
        let now = self.now_us();
        let mut line = self.line();
        line.drain.left(now);
        if line.waiting.is_empty() {
            line.drain.emptied();
        }
    }

    /// Lets in whoever is next and fits. `release`: one of those that a policy holds may be among them.
    pub(super) fn admit_ready(self: &Arc<Self>, mut release: Option<CapacityEvent>) {
        let now = self.now_us();
        let mut undelivered = Vec::new();
        let mut line = self.line();
        let line_now = &mut *line;
        let step = line_now.drain.step_us(now);
        let is_blocked = loop {
            let first = line_now
                .waiting
                .first(now, step, self.releases(), release.as_ref());
            let Some((number, one)) = first else { break false };
            let asks = one.held.is_some_and(|held| held.asked_at.is_some());
            let aim = one.awaited_worker();
            let Some(tokens) = self.take(one.tokens) else {
                break true;
            };
            let Some((one, tell)) = line_now.waiting.serve(number) else {
                debug_assert!(false, "the first in line is in the line");
                self.untake(tokens);
                break false;
            };
            let permit = Permit {
                gate: Arc::clone(self),
                tokens,
                output: tell.output,
                charged: Some(Charge {
                    tenant: one.tenant,
                    weight: tell.weight,
                    share: one.share,
                }),
                is_used: false,
            };
            let mut asked_for = if asks { release.take() } else { None };
            if let Some(release) = &mut asked_for {
                release.spend(aim);
            }
            // One whose wait is over has given up its entry, so this always lands; were it not to, the permit must not be
            // dropped under the lock.
            let wake = WakeReason::In {
                permit,
                release: asked_for,
            };
            undelivered.extend(tell.wake.send(wake).err());
        };
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
        drop(line);
        drop(undelivered);
    }

    /// What was taken for one of so many tokens, as its permit gives it back.
    fn take(&self, tokens: u64) -> Option<u64> {
        if !self.counts.load(Ordering::SeqCst) {
            return Some(UNCOUNTED);
        }
        self.budget.take(tokens).then_some(tokens)
    }

    fn untake(&self, tokens: u64) {
        if tokens != UNCOUNTED {
            self.budget.give(tokens);
        }
    }

    /// How many are before one of that class, and how long it will be until those have left, where that is known.
    pub(super) fn outlook(&self, class: i32) -> (usize, Option<Duration>) {
        let line = self.line();
        let ahead = line.waiting.ahead_of(class);
        let wait = line.drain.wait_us(ahead, self.now_us());
        (ahead, wait.map(Duration::from_micros))
    }

    /// When one of that class that is sent away may come back: when those who wait are gone, at the pace they go.
    pub(super) fn retry_after(&self, class: i32) -> Duration {
        let (_, wait) = self.outlook(class);
        wait.unwrap_or_default().clamp(RETRY_AFTER[0], RETRY_AFTER[1])
    }

    fn reckon_if_due(&self) {
        let at = self.reckon_at_us.load(Ordering::Relaxed);
        if at != u64::MAX && self.now_us() >= at {
            self.recompute_limits();
        }
    }

    /// Makes the limits of what is known of the workers now.
    fn recompute_limits(&self) {
        let limits = self.capacity().limits();
        self.budget.set_limits(limits);
        let next = self.now_us().saturating_add(RECKON_EVERY_US);
        // What does not follow the workers stays so.
        let later = |at: u64| (at != u64::MAX).then_some(next);
        let _ = self
            .reckon_at_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    fn now_us(&self) -> u64 {
        self.micros(Instant::now())
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.line().waiting.len()
    }
}

/// The tokens of a permit for which nothing was taken.
const UNCOUNTED: u64 = u64::MAX;
