//! Admission controller of a pool: its budget and its queue.
//!
//! A request that finds room costs only the budget's atomics. Any other request is queued. When room is freed, as many
//! queued requests as fit are admitted in queue order. Each gets its permit at that moment, so that no later request
//! takes the room.
//!
//! When capacity is freed, held requests are re-evaluated in queue order. If the policy holds a request again, the
//! notification moves to the next one until its wake budget is used up (see [`CapacityEvent`]). If a request is
//! dispatched or cancelled, the budget is reset, because one release can free room for several requests. When policies
//! change, every held request is re-evaluated once, without a budget (a sweep).
//!
//! The lock is taken for one operation on the queue at a time, and never held across a wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::{Budget, BudgetLimits, BudgetUse, CapacityEvent, ClassCounts, DrainRate, FairQueue, Held};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission_request::AdmissionRequest;
use super::capacity::Capacity;
use super::metrics::AdmissionMetrics;
use super::permit::{Charge, Permit};
use super::queue_entry::{QueueEntry, QueuePosition};
use super::releases::{Releases, SweepDecision};
use crate::base::life::next_life;

/// Minimum and maximum of `Retry-After`.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Marker of a permit that took no tokens.
pub(super) const UNCOUNTED: u64 = u64::MAX;

/// Admission controller of a pool. It outlives snapshots.
#[derive(Debug)]
pub(crate) struct AdmissionController {
    pub(super) budget: Budget,
    /// Set if any budget is configured.
    pub(super) has_budget: AtomicBool,
    /// `true` while a queued request goes before new ones.
    pub(super) is_blocked: AtomicBool,
    queue: Mutex<LockedQueue>,
    /// Queue entries, waiting or being re-evaluated.
    held: AtomicUsize,
    /// Queue entries of other routers.
    pub(super) elsewhere: AtomicUsize,
    arrivals: AtomicU64,
    pub(super) releases: Releases,
    /// Set if usage is counted by tenant.
    has_tenants: AtomicBool,
    /// Inputs of the limits.
    capacity: Mutex<Capacity>,
    /// Set if the limits fall with each request that ends at a worker out of service.
    pub(super) has_others: AtomicBool,
    /// Time of the next recomputation; never, if the limits do not depend on the workers.
    pub(super) recompute_at_us: AtomicU64,
    started: Instant,
    /// Number of its beginning, with which the tenants' counters begin.
    pub(crate) life: u64,
    pub(super) metrics: AdmissionMetrics,
}

/// Queue with its drain rate, under one lock.
#[derive(Debug, Default)]
pub(super) struct LockedQueue {
    pub(super) waiting: FairQueue<Waiter>,
    drain: DrainRate,
}

/// Waker of a queued request.
#[derive(Debug)]
pub(super) struct Waiter {
    wake: oneshot::Sender<WakeReason>,
    output: u64,
    weight: f64,
    since: Instant,
}

/// Reason of a wake-up.
#[derive(Debug)]
pub(super) enum WakeReason {
    /// Admitted, or to be re-evaluated.
    In {
        permit: Permit,
        /// Release for which the policy is called again.
        release: Option<CapacityEvent>,
        /// Sweep for which the policy is called again.
        sweep: Option<SweepDecision>,
    },
    /// Shed: a more important request takes the place.
    Shed,
}

/// Kind of a wait, for the fairness between tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitKind {
    /// Wait of a request that has not been in the queue yet.
    First,
    /// Wait of a request that was in the queue before, and that its policy holds further.
    Again,
}

/// Error: the queue has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

impl AdmissionController {
    pub(crate) fn new(metrics: AdmissionMetrics) -> Arc<Self> {
        Arc::new(Self {
            budget: Budget::default(),
            has_budget: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            queue: Mutex::default(),
            held: AtomicUsize::new(0),
            elsewhere: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            releases: Releases::default(),
            has_tenants: AtomicBool::new(false),
            capacity: Mutex::default(),
            has_others: AtomicBool::new(false),
            recompute_at_us: AtomicU64::new(u64::MAX),
            started: Instant::now(),
            life: next_life(),
            metrics,
        })
    }

    /// Returns the number of queue entries.
    pub(crate) fn len(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Returns the number of queue entries of all routers, as far as they share it.
    pub(crate) fn len_of_fleet(&self) -> usize {
        let elsewhere = self.elsewhere.load(Ordering::Relaxed);
        self.len().saturating_add(elsewhere)
    }

    /// Returns the counter of releases. Read it before the policy is called and pass it to [`QueueEntry::hold`].
    pub(crate) fn releases(&self) -> u64 {
        self.releases.count.load(Ordering::SeqCst)
    }

    /// Returns the usage of the budget, and its limits.
    pub(crate) fn budget(&self) -> (BudgetUse, BudgetLimits) {
        (self.budget.used(), self.budget.limits())
    }

    /// Returns the number of waiting requests by kind of class.
    pub(crate) fn counts(&self) -> ClassCounts {
        self.queue().waiting.counts()
    }

    /// Returns the wait so far of the request that has waited longest. `None` while none waits.
    pub(crate) fn oldest_wait(&self) -> Option<Duration> {
        // Not that of the first arrival: it may have been at a worker since.
        let since = self.queue().waiting.wakers().map(|waiter| waiter.since).min()?;
        Some(since.elapsed())
    }

    /// Returns the queue position of a request that waits for the first time, at most until `deadline`.
    pub(super) fn turn(&self, deadline: Instant) -> QueuePosition {
        QueuePosition {
            number: self.arrivals.fetch_add(1, Ordering::Relaxed),
            deadline,
            since: Instant::now(),
        }
    }

    /// Admits a request that has not waited, if there is room and no queued request goes first. Takes no permit if no
    /// budget is configured.
    pub(super) fn pass(
        self: &Arc<Self>,
        request: impl FnOnce() -> AdmissionRequest,
    ) -> Result<Option<Permit>, AdmissionRequest> {
        if !self.has_budget.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.recompute_and_admit();
        let request = request();
        if self.is_blocked.load(Ordering::SeqCst) || !self.budget.take(request.tokens()) {
            return Err(request);
        }
        let charged = self.charge(&request);
        Ok(Some(Permit {
            controller: Arc::clone(self),
            tokens: request.tokens(),
            output: request.output,
            charged,
            is_used: false,
        }))
    }

    /// Tenants are only counted once one exists.
    fn charge(&self, request: &AdmissionRequest) -> Option<Charge> {
        if !self.is_charged(&request.tenant) {
            return None;
        }
        self.has_tenants.store(true, Ordering::Relaxed);
        self.queue().waiting.pass(&request.tenant, request.share());
        Some(Charge {
            tenant: Arc::clone(&request.tenant),
            weight: request.weight,
            share: request.share(),
            is_decided: false,
        })
    }

    /// Returns `true` if a tenant's requests are counted.
    fn is_charged(&self, tenant: &str) -> bool {
        !tenant.is_empty() || self.has_tenants.load(Ordering::Relaxed)
    }

    /// Records that a tenant's held request is sent.
    pub(super) fn decided(&self, charge: &Charge) {
        self.queue().waiting.decided(&charge.tenant, charge.share);
    }

    pub(super) fn correct(&self, tenant: &Arc<str>, share: f64) {
        self.queue().waiting.correct(tenant, share);
    }

    /// Takes a queue entry if fewer than `limit` are in use, or if a less important request can be shed.
    pub(super) fn enter(
        self: &Arc<Self>,
        turn: QueuePosition,
        limit: usize,
        class: i32,
    ) -> Result<QueueEntry, QueueFull> {
        let more = |held: usize| (held < limit).then_some(held + 1);
        let counted = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        if counted.is_err() && !self.shed_for(class) {
            // The check of the budget may have blocked another request.
            self.admit_ready(None);
            return Err(QueueFull);
        }
        Ok(QueueEntry::new(Arc::clone(self), turn))
    }

    /// Returns `true` if a new request has to wait and the queue is full, by limits that are not overdue.
    pub(super) fn is_crowded(self: &Arc<Self>, limit: usize) -> bool {
        let is_crowded = || self.is_blocked.load(Ordering::SeqCst) && self.len() >= limit;
        if !self.has_budget.load(Ordering::Relaxed) || !is_crowded() {
            return false;
        }
        self.recompute_and_admit();
        is_crowded()
    }

    /// Returns `true` if a queued request would be shed for one of this class.
    pub(super) fn may_shed_for(&self, class: i32) -> bool {
        self.queue().waiting.victim(class).is_some()
    }

    /// Sheds a less important request. Returns `true` if there was one.
    fn shed_for(&self, class: i32) -> bool {
        let mut queue = self.queue();
        let victim = queue.waiting.victim(class);
        let shed = victim.and_then(|number| queue.waiting.remove(number));
        // A request whose wait is over has given up its entry, so the message always arrives.
        shed.is_some_and(|(_, waiter)| waiter.wake.send(WakeReason::Shed).is_ok())
    }

    /// Releases a queue entry.
    pub(super) fn leave(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Enqueues a request. Returns `None` if capacity was freed or policies changed after the policy was
    /// called.
    pub(super) fn enqueue(
        &self,
        turn: QueuePosition,
        request: &AdmissionRequest,
        held: Option<Held>,
        wait: WaitKind,
    ) -> Option<oneshot::Receiver<WakeReason>> {
        let mut queue = self.queue();
        let releases = self.releases();
        if held.is_some_and(|held| held.evaluated_at.is_some_and(|seen| seen != releases)) {
            return None;
        }
        if queue.waiting.is_empty() {
            queue.drain.emptied();
        }
        if !request.tenant.is_empty() {
            self.has_tenants.store(true, Ordering::Relaxed);
        }
        let (wake, woken) = oneshot::channel();
        let start_by = turn.deadline.min(request.start_by(self.started));
        let waiter = Waiter {
            wake,
            output: request.output,
            weight: request.weight,
            since: turn.since,
        };
        let one = request.waiting(held, self.micros(start_by));
        match wait {
            WaitKind::First => queue.waiting.insert(turn.number, one, waiter),
            WaitKind::Again => drop(queue.waiting.put_back(turn.number, one, waiter)),
        }
        Some(woken)
    }

    /// Removes a request from the queue. Returns `true` if it was still waiting.
    pub(super) fn dequeue(self: &Arc<Self>, turn: QueuePosition) -> bool {
        let gone = self.queue().waiting.remove(turn.number);
        if gone.is_some() {
            self.admit_ready(None);
        }
        gone.is_some()
    }

    /// Marks a held request for re-evaluation now.
    pub(super) fn reevaluate(self: &Arc<Self>, turn: QueuePosition) {
        self.queue().waiting.make_due(turn.number);
        self.admit_ready(None);
    }

    /// Records that a queued request goes to a worker.
    pub(super) fn sent(&self) {
        let now = self.now_us();
        let mut queue = self.queue();
        queue.drain.left(now);
        if queue.waiting.is_empty() {
            queue.drain.emptied();
        }
    }

    /// Admits the next requests that fit. With a `release` or during a sweep, held requests may be among them.
    pub(super) fn admit_ready(self: &Arc<Self>, mut release: Option<CapacityEvent>) {
        let now = self.now_us();
        let mut undelivered = Vec::new();
        let mut queue = self.queue();
        let locked = &mut *queue;
        let step = locked.drain.step_us(now);
        let is_blocked = loop {
            let first = locked.waiting.first(now, step, self.releases(), release.as_ref());
            let Some((number, one)) = first else { break false };
            let is_held = one.held.is_some_and(|held| held.evaluated_at.is_some());
            let is_decided = one.held.is_some();
            let aim = one.awaited_worker();
            let Some(tokens) = self.take(one.tokens) else {
                break true;
            };
            let is_swept = locked.waiting.begin_sweep_decision(number);
            let Some((one, waiter)) = locked.waiting.serve(number) else {
                debug_assert!(false, "the first in the queue is in the queue");
                if is_swept {
                    locked.waiting.end_sweep_decision();
                }
                if tokens != UNCOUNTED {
                    self.budget.give(tokens);
                }
                break false;
            };
            let permit = Permit {
                controller: Arc::clone(self),
                tokens,
                output: waiter.output,
                charged: self.is_charged(&one.tenant).then_some(Charge {
                    tenant: one.tenant,
                    weight: waiter.weight,
                    share: one.share,
                    is_decided,
                }),
                is_used: false,
            };
            let mut spent = release.take_if(|_| is_held && !is_swept);
            if let Some(release) = &mut spent {
                release.spend(aim);
            }
            // A request whose wait is over has given up its entry, so the message always arrives. If it did not, the
            // permit must not be dropped under the lock.
            let wake = WakeReason::In {
                permit,
                release: spent,
                sweep: is_swept.then(|| SweepDecision::new(self)),
            };
            undelivered.extend(waiter.wake.send(wake).err());
        };
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
        drop(queue);
        drop(undelivered);
    }

    /// Returns the tokens taken for a request, in the form that its permit gives back.
    fn take(&self, tokens: u64) -> Option<u64> {
        if !self.has_budget.load(Ordering::SeqCst) {
            return Some(UNCOUNTED);
        }
        self.budget.take(tokens).then_some(tokens)
    }

    /// Returns the number of requests before one of this class, and the predicted time until they have left.
    pub(super) fn outlook(&self, class: i32) -> (usize, Option<Duration>) {
        let queue = self.queue();
        let ahead = queue.waiting.ahead_of(class);
        let wait = queue.drain.wait_us(ahead, self.now_us());
        (ahead, wait.map(Duration::from_micros))
    }

    /// Returns the value of `Retry-After` for this class: the time until the waiting requests are gone, at the current
    /// pace.
    pub(super) fn retry_after(&self, class: i32) -> Duration {
        let (_, wait) = self.outlook(class);
        wait.unwrap_or_default().clamp(RETRY_AFTER[0], RETRY_AFTER[1])
    }

    pub(super) fn now_us(&self) -> u64 {
        self.micros(Instant::now())
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, LockedQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }
}
