//! Admission controller of a pool: its budget and its queue.
//!
//! A request that finds room costs only the budget's atomics. Any other request is queued. When room is freed, as many
//! queued requests as fit are admitted in queue order. Each gets its permit at that moment, so that no later request
//! takes the room.
//!
//! When capacity is freed, held requests are re-evaluated in queue order. If the policy holds a request again, the
//! notification moves to the next one until its wake budget is used up (see [`CapacityEvent`]). If a request is
//! dispatched or cancelled, the budget is reset, because one release can free room for several requests.
//!
//! The lock is taken for one operation on the queue at a time, and never held across a wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::{
    Budget, BudgetLimits, BudgetUse, CapacityEvent, ClassCounts, DrainRate, FairQueue, Held, WorkerId,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission_request::AdmissionRequest;
use super::capacity::Capacity;
use super::metrics::AdmissionMetrics;
use super::permit::{Charge, Permit};
use super::queue_entry::{QueueEntry, QueuePosition};
use super::releases::Releases;
use crate::base::life::next_life;

/// Minimum and maximum of `Retry-After`.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Interval in microseconds at which limits that depend on the workers are recomputed.
const RECKON_EVERY_US: u64 = 500_000;

/// Admission controller of a pool. It outlives snapshots.
#[derive(Debug)]
pub(crate) struct AdmissionController {
    pub(super) budget: Budget,
    /// Set if any budget is configured.
    counts: AtomicBool,
    /// `true` while a queued request goes before new ones.
    pub(super) is_blocked: AtomicBool,
    line: Mutex<Line>,
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
    reckon_at_us: AtomicU64,
    started: Instant,
    /// Number of its beginning, with which the tenants' counters begin.
    pub(crate) life: u64,
    pub(super) metrics: AdmissionMetrics,
}

#[derive(Debug, Default)]
pub(super) struct Line {
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
            counts: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            line: Mutex::default(),
            held: AtomicUsize::new(0),
            elsewhere: AtomicUsize::new(0),
            arrivals: AtomicU64::new(0),
            releases: Releases::default(),
            has_tenants: AtomicBool::new(false),
            capacity: Mutex::default(),
            has_others: AtomicBool::new(false),
            reckon_at_us: AtomicU64::new(u64::MAX),
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

    /// Returns the waiting requests per worker: see [`FairQueue::ahead`].
    pub(crate) fn ahead(&self, workers: &[WorkerId], most: &[u32]) -> Vec<u32> {
        self.line().waiting.ahead(workers, most)
    }

    /// Returns the number of waiting requests by kind of class.
    pub(crate) fn counts(&self) -> ClassCounts {
        self.line().waiting.counts()
    }

    /// Returns the wait so far of the request that has waited longest. `None` while none waits.
    pub(crate) fn oldest_wait(&self) -> Option<Duration> {
        let since = self.line().waiting.oldest()?.since;
        Some(since.elapsed())
    }

    /// Activates budgets and admits the requests that have room then. Held requests keep the workers they target.
    pub(crate) fn put_in_force(self: &Arc<Self>, capacity: Capacity) {
        let follows = capacity.follows_workers();
        self.counts.store(capacity.is_any(), Ordering::SeqCst);
        self.capacity().replace(capacity);
        let next = if follows { 0 } else { u64::MAX };
        self.reckon_at_us.store(next, Ordering::SeqCst);
        self.recompute_limits();
        self.admit_ready(None);
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
        if !self.counts.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.reckon_if_due();
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
        self.line().waiting.pass(&request.tenant, request.share());
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
        self.line().waiting.decided(&charge.tenant, charge.share);
    }

    pub(super) fn correct(&self, tenant: &Arc<str>, share: f64) {
        self.line().waiting.correct(tenant, share);
    }

    /// Returns a permit's share of the budget. An unused permit frees nothing that a policy could not have had before.
    pub(super) fn give_back(self: &Arc<Self>, tokens: u64, was_used: bool) {
        if tokens == UNCOUNTED {
            return;
        }
        if self.has_others.load(Ordering::Relaxed) {
            // The room of a request that ends at a worker out of service is not another worker's: the limit falls first.
            let capacity = self.capacity();
            self.budget.set_limits(capacity.with_running(self.budget.used()));
        }
        self.budget.give(tokens);
        // The worker's load was released just before, when only the budget blocked requests.
        if was_used && self.is_blocked.load(Ordering::SeqCst) {
            self.release(CapacityEvent::anywhere());
        } else if self.len() > 0 {
            self.admit_ready(None);
        }
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

    /// Returns `true` if a new request has to wait and the queue is full.
    pub(super) fn is_crowded(&self, limit: usize) -> bool {
        self.counts.load(Ordering::Relaxed) && self.is_blocked.load(Ordering::SeqCst) && self.len() >= limit
    }

    /// Returns `true` if a queued request would be shed for one of this class.
    pub(super) fn may_shed_for(&self, class: i32) -> bool {
        self.line().waiting.victim(class).is_some()
    }

    /// Sheds a less important request. Returns `true` if there was one.
    fn shed_for(&self, class: i32) -> bool {
        let mut line = self.line();
        let victim = line.waiting.victim(class);
        let shed = victim.and_then(|number| line.waiting.remove(number));
        // A request whose wait is over has given up its entry, so the message always arrives.
        shed.is_some_and(|(_, waiter)| waiter.wake.send(WakeReason::Shed).is_ok())
    }

    /// Releases a queue entry.
    pub(super) fn leave(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Enqueues a request. Returns `None` if capacity was freed after the policy was called.
    pub(super) fn enqueue(
        &self,
        turn: QueuePosition,
        request: &AdmissionRequest,
        held: Option<Held>,
        wait: WaitKind,
    ) -> Option<oneshot::Receiver<WakeReason>> {
        let mut line = self.line();
        let releases = self.releases();
        if held.is_some_and(|held| held.evaluated_at.is_some_and(|seen| seen != releases)) {
            return None;
        }
        if line.waiting.is_empty() {
            line.drain.emptied();
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
            WaitKind::First => line.waiting.insert(turn.number, one, waiter),
            WaitKind::Again => drop(line.waiting.put_back(turn.number, one, waiter)),
        }
        Some(woken)
    }

    /// Removes a request from the queue. Returns `true` if it was still waiting.
    pub(super) fn dequeue(self: &Arc<Self>, turn: QueuePosition) -> bool {
        let gone = self.line().waiting.remove(turn.number);
        if gone.is_some() {
            self.admit_ready(None);
        }
        gone.is_some()
    }

    /// Marks a held request for re-evaluation now.
    pub(super) fn reevaluate(self: &Arc<Self>, turn: QueuePosition) {
        self.line().waiting.make_due(turn.number);
        self.admit_ready(None);
    }

    /// Records that a queued request goes to a worker.
    pub(super) fn sent(&self) {
        let now = self.now_us();
        let mut line = self.line();
        line.drain.left(now);
        if line.waiting.is_empty() {
            line.drain.emptied();
        }
    }

    /// Admits the next requests that fit. With a `release`, a held request may be among them.
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
            let is_held = one.held.is_some_and(|held| held.evaluated_at.is_some());
            let is_decided = one.held.is_some();
            let aim = one.awaited_worker();
            let Some(tokens) = self.take(one.tokens) else {
                break true;
            };
            let Some((one, waiter)) = line_now.waiting.serve(number) else {
                debug_assert!(false, "the first in line is in the line");
                self.untake(tokens);
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
            let mut spent = if is_held { release.take() } else { None };
            if let Some(release) = &mut spent {
                release.spend(aim);
            }
            // A request whose wait is over has given up its entry, so the message always arrives. If it did not, the
            // permit must not be dropped under the lock.
            let wake = WakeReason::In {
                permit,
                release: spent,
            };
            undelivered.extend(waiter.wake.send(wake).err());
        };
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
        drop(line);
        drop(undelivered);
    }

    /// Returns the tokens taken for a request, in the form that its permit gives back.
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

    /// Returns the number of requests before one of this class, and the predicted time until they have left.
    pub(super) fn outlook(&self, class: i32) -> (usize, Option<Duration>) {
        let line = self.line();
        let ahead = line.waiting.ahead_of(class);
        let wait = line.drain.wait_us(ahead, self.now_us());
        (ahead, wait.map(Duration::from_micros))
    }

    /// Returns the value of `Retry-After` for this class: the time until the waiting requests are gone, at the current
    /// pace.
    pub(super) fn retry_after(&self, class: i32) -> Duration {
        let (_, wait) = self.outlook(class);
        wait.unwrap_or_default().clamp(RETRY_AFTER[0], RETRY_AFTER[1])
    }

    pub(super) fn reckon_if_due(&self) {
        let at = self.reckon_at_us.load(Ordering::Relaxed);
        if at != u64::MAX && self.now_us() >= at {
            self.recompute_limits();
        }
    }

    /// Recomputes the limits from the current state of the workers.
    pub(super) fn recompute_limits(&self) {
        // Locked until the limits are set: those of a replaced capacity must not overwrite the new ones.
        let mut capacity = self.capacity();
        self.budget.set_limits(capacity.limits(self.budget.used()));
        self.has_others.store(capacity.has_others(), Ordering::SeqCst);
        drop(capacity);
        let next = self.now_us().saturating_add(RECKON_EVERY_US);
        // Limits that do not depend on the workers keep this value.
        let later = |at: u64| (at != u64::MAX).then_some(next);
        let _ = self
            .reckon_at_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    pub(super) fn now_us(&self) -> u64 {
        self.micros(Instant::now())
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.line().waiting.len()
    }
}

/// Marker of a permit that took no tokens.
const UNCOUNTED: u64 = u64::MAX;
