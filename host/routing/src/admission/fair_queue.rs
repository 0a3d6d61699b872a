//! Fair priority queue of a pool.
//!
//! The most important class goes first, within a class the tenant with the least service, within a tenant the order of
//! [`TenantQueue`]. No request overtakes the first one for being smaller, so the first is admitted as soon as there is
//! room for it.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::capacity_event::CapacityEvent;
use super::held_summary::HeldSummary;
use super::order_key::OrderKey;
use super::sweep::Sweep;
use super::tenant_queue::TenantQueue;
use super::tenants::{TenantService, Tenants};
use super::waiters::{WaitersByWorker, WorkerWaiter};
use super::waiting::Waiting;
use crate::id::WorkerId;
use crate::number_map::NumberMap;

/// Requests by kind of class: sheddable (below 0), class 0, and preferred.
pub type ClassCounts = [usize; 3];

/// The queue of a pool. Each request has a number of the caller's, later ones higher, and a waker.
#[derive(Debug)]
pub struct FairQueue<W> {
    pub(super) entries: NumberMap<u64, (Waiting, W)>,
    pub(super) classes: BTreeMap<Reverse<i32>, Class>,
    pub(super) tenants: Tenants,
    pub(super) waiters: WaitersByWorker,
    pub(super) sweep: Sweep,
}

#[derive(Debug, Default)]
pub(super) struct Class {
    numbers: BTreeSet<u64>,
    pub(super) queues: HashMap<Arc<str>, RankedQueue>,
    /// The tenant with the least service first; of two alike, the one that waits longer.
    pub(super) by_level: BTreeSet<(QueueRank, Arc<str>)>,
}

/// Service of the tenant, and the number of the queue's first request.
type QueueRank = (OrderKey, u64);

/// A tenant's queue, and its rank among the others.
#[derive(Debug)]
pub(super) struct RankedQueue {
    pub(super) queue: TenantQueue,
    place: QueueRank,
}

impl RankedQueue {
    /// Returns the service of the tenant.
    pub(super) fn level(&self) -> f64 {
        self.place.0.0
    }
}

impl Class {
    /// Adds a request to the tenant's queue at that level of service. Returns the tenant, always by the same `Arc`
    /// while the queue exists, and whether the queue is a new one.
    fn insert(&mut self, number: u64, one: &Waiting, level: f64) -> (Arc<str>, bool) {
        self.numbers.insert(number);
        match self.queues.entry(Arc::clone(&one.tenant)) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().queue.insert(number, one);
                (Arc::clone(entry.key()), false)
            }
            Entry::Vacant(entry) => {
                let (tenant, place) = (Arc::clone(entry.key()), (OrderKey::of(level), number));
                self.by_level.insert((place, Arc::clone(&tenant)));
                let queue = TenantQueue::default();
                entry
                    .insert(RankedQueue { queue, place })
                    .queue
                    .insert(number, one);
                (tenant, true)
            }
        }
    }

    /// Moves the tenant's queue, if it has one, to that level of service.
    fn move_to(&mut self, tenant: &Arc<str>, level: f64) {
        if let Some(placed) = self.queues.get_mut(tenant) {
            let before = (placed.place, Arc::clone(tenant));
            placed.place.0 = OrderKey::of(level);
            if placed.place != before.0 {
                self.by_level.remove(&before);
                self.by_level.insert((placed.place, before.1));
            }
        }
    }
}

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        Self {
            entries: NumberMap::default(),
            classes: BTreeMap::new(),
            tenants: Tenants::default(),
            waiters: WaitersByWorker::default(),
            sweep: Sweep::default(),
        }
    }
}

impl<W> FairQueue<W> {
    /// Charges a tenant for a request that is admitted without waiting; `share` is its weighted tokens over the
    /// tenant's weight.
    pub fn pass(&mut self, tenant: &Arc<str>, share: f64) {
        let (tenant, level) = self.tenants.pass(tenant, share);
        self.has_moved(&tenant, level);
    }

    /// Corrects a tenant's charge by the difference to a request's true size.
    pub fn correct(&mut self, tenant: &Arc<str>, share: f64) {
        if let Some(level) = self.tenants.correct(tenant, share) {
            self.has_moved(tenant, level);
        }
    }

    /// Charges a tenant for requests that other routers admitted.
    pub fn serve_elsewhere(&mut self, tenant: &Arc<str>, share: f64) {
        if let Some(level) = self.tenants.serve_elsewhere(tenant, share) {
            self.has_moved(tenant, level);
        }
    }

    /// Calls `visit` with each tenant that has a counter.
    pub fn visit_tenants(&self, visit: impl FnMut(TenantService<'_>)) {
        self.tenants.visit(visit);
    }

    /// Moves a tenant's queues after its service has changed.
    fn has_moved(&mut self, tenant: &Arc<str>, level: f64) {
        for class in self.classes.values_mut() {
            class.move_to(tenant, level);
        }
    }

    /// Returns how many requests wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the wakers of all requests, in no order.
    pub fn wakers(&self) -> impl Iterator<Item = &W> {
        self.entries.values().map(|(_, waker)| waker)
    }

    /// Returns how many wait by kind of class.
    #[must_use]
    pub fn counts(&self) -> ClassCounts {
        let mut counts = ClassCounts::default();
        for (Reverse(class), of_class) in &self.classes {
            counts[(class.signum() + 1).unsigned_abs() as usize] += of_class.numbers.len();
        }
        counts
    }

    /// Returns how many requests a newcomer of that class does not overtake by its class alone.
    #[must_use]
    pub fn ahead_of(&self, class: i32) -> usize {
        let ahead = self.classes.range(..=Reverse(class));
        ahead.map(|(_, of_class)| of_class.numbers.len()).sum()
    }

    /// Enqueues a request that has not waited yet. One of the same number is replaced.
    pub fn insert(&mut self, number: u64, one: Waiting, waiter: W) {
        let (tenant, is_new) = self.put_back(number, one, waiter);
        if is_new {
            let level = self.tenants.lift(&tenant);
            self.has_moved(&tenant, level);
        }
    }

    /// Enqueues a request again that was decided and is held further. Its tenant was not idle meanwhile. Returns the
    /// name under which the tenant is counted, and whether it has no other request of that class in the queue.
    pub fn put_back(&mut self, number: u64, mut one: Waiting, waiter: W) -> (Arc<str>, bool) {
        self.remove(number);
        one.tenant = self.tenants.name(&one.tenant);
        let level = self.tenants.level(&one.tenant);
        let class = self.classes.entry(Reverse(one.class)).or_default();
        let (tenant, is_new) = class.insert(number, &one, level);
        one.tenant = Arc::clone(&tenant);
        if let Some(held) = one.held
            && let Some((worker, work)) = held.waits_for
        {
            self.waiters.insert(
                worker,
                WorkerWaiter {
                    number,
                    work,
                    order: held.order,
                    class: one.class,
                    tenant: Arc::clone(&tenant),
                    share: one.share,
                },
            );
        }
        self.entries.insert(number, (one, waiter));
        (tenant, is_new)
    }

    /// Removes a request and returns it with its waker. Its tenant is not charged.
    pub fn remove(&mut self, number: u64) -> Option<(Waiting, W)> {
        let (one, waiter) = self.entries.remove(&number)?;
        if let Some((worker, _)) = one.waits_for() {
            self.waiters.remove(worker, number);
        }
        if let Some(class) = self.classes.get_mut(&Reverse(one.class)) {
            class.numbers.remove(&number);
            if let Some(placed) = class.queues.get_mut(&one.tenant) {
                if placed.queue.remove(number, &one) {
                    self.sweep.unmark();
                }
                if placed.queue.is_empty() {
                    class.by_level.remove(&(placed.place, Arc::clone(&one.tenant)));
                    class.queues.remove(&one.tenant);
                }
            }
            if class.numbers.is_empty() {
                self.classes.remove(&Reverse(one.class));
            }
        }
        Some((one, waiter))
    }

    /// Dequeues a request that is admitted, or decided again if it is held. Its tenant is charged.
    pub fn serve(&mut self, number: u64) -> Option<(Waiting, W)> {
        let (one, waiter) = self.remove(number)?;
        let level = match one.held {
            Some(_) => self.tenants.charge(&one.tenant, one.share),
            None => self.tenants.serve(&one.tenant, one.share),
        };
        self.has_moved(&one.tenant, level);
        Some((one, waiter))
    }

    /// Moves the virtual time after a decision that ended the wait of a held request with this share.
    pub fn decided(&mut self, tenant: &str, share: f64) {
        self.tenants.advance(tenant, share);
    }

    /// Makes a held request due for a decision as soon as there is room.
    pub fn make_due(&mut self, number: u64) {
        if let Some((mut one, waiter)) = self.remove(number) {
            if let Some(held) = &mut one.held {
                held.evaluated_at = None;
            }
            self.put_back(number, one, waiter);
        }
    }

    /// Returns the next request at that time, where one leaves the queue every `step_us` (none: unknown) and there were
    /// so many capacity events. With `release` it may be a held one that the event has budget for, at most once after
    /// each event. It may also be the next one of a sweep ([`Self::begin_sweep`]).
    pub fn first(
        &mut self,
        now_us: u64,
        step_us: Option<u64>,
        releases: u64,
        release: Option<&CapacityEvent>,
    ) -> Option<(u64, &Waiting)> {
        let is_sweep_due = self.sweep.is_due();
        // Queues are skipped whose requests are all held and have no budget for another decision.
        let first_of = |class: &mut Class| {
            let Class { queues, by_level, .. } = class;
            let first = |tenant| {
                queues
                    .get_mut(tenant)?
                    .queue
                    .first(now_us, step_us, releases, release, is_sweep_due)
            };
            by_level.iter().map(|(_, tenant)| tenant).find_map(first)
        };
        let number = self.classes.values_mut().find_map(first_of)?;
        let (one, _) = self.entries.get(&number)?;
        Some((number, one))
    }

    /// Calls `visit` with each worker that held requests wait for, and their summary.
    pub fn summarize_waiters(&self, visit: impl FnMut(WorkerId, &HeldSummary)) {
        self.waiters.summarize(visit);
    }

    /// Returns the request to shed for one of that class: the last of the least important class that may be shed.
    #[must_use]
    pub fn victim(&self, class: i32) -> Option<u64> {
        let (Reverse(least), of_class) = self.classes.last_key_value()?;
        let may_be_shed = *least < 0 && *least < class;
        of_class.numbers.last().copied().filter(|_| may_be_shed)
    }
}
