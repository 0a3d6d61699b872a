//! Queue of one tenant in one class.
//!
//! Held requests go first, in their policy's order, then the shortest. If the request with the least slack would be
//! late because the shortest goes first, it goes before. Requests that are late already go last.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::capacity_event::CapacityEvent;
use super::order_key::OrderKey;
use super::waiting::{Held, Waiting};
use crate::id::WorkerId;

/// Requests by their policy's order, then by arrival.
type ByOrder = BTreeSet<HeldKey>;

/// Held requests, by the worker that they wait for.
#[derive(Debug, Default)]
struct HeldByWorker(HashMap<Option<WorkerId>, ByOrder>);

#[derive(Debug, Default)]
pub(super) struct TenantQueue {
    /// Held, and due for a decision as soon as there is room.
    due: ByOrder,
    /// Held, and due for a decision when freed capacity has budget for it.
    fresh: HeldByWorker,
    /// Held, and decided since capacity was freed last.
    evaluated: HeldByWorker,
    /// Number of capacity events when those were decided.
    evaluated_at: u64,
    /// All held requests.
    held: BTreeMap<HeldKey, HeldCost>,
    /// Held requests that a sweep has not reached yet.
    marked: ByOrder,
    /// The others by their work, with the time it takes; and by when they have to begin, with their work.
    by_work: BTreeMap<(u64, u64), u64>,
    by_start: BTreeMap<(u64, u64), u64>,
    /// Requests among the others that are too late, by arrival.
    late: BTreeSet<u64>,
}

/// Place of a held request: its policy's order, then its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeldKey {
    order: OrderKey,
    number: u64,
}

/// Charge of a held request, and its work at the worker that it waits for.
#[derive(Debug, Clone, Copy)]
struct HeldCost {
    share: f64,
    waits_for: Option<(WorkerId, u32)>,
}

impl HeldByWorker {
    fn insert(&mut self, worker: Option<WorkerId>, key: HeldKey) {
        self.0.entry(worker).or_default().insert(key);
    }

    fn remove(&mut self, worker: Option<WorkerId>, key: HeldKey) -> bool {
        let Some(keys_there) = self.0.get_mut(&worker) else {
            return false;
        };
        let was_there = keys_there.remove(&key);
        if keys_there.is_empty() {
            self.0.remove(&worker);
        }
        was_there
    }

    /// Moves all keys of `other` here, at the cost of the smaller of the two.
    fn take_over(&mut self, other: &mut Self) {
        for (worker, mut keys) in other.0.drain() {
            let keys_there = self.0.entry(worker).or_default();
            if keys_there.len() < keys.len() {
                std::mem::swap(keys_there, &mut keys);
            }
            keys_there.extend(keys);
        }
    }

    /// Returns the first request that the event has budget for.
    fn first(&self, release: &CapacityEvent) -> Option<&HeldKey> {
        let eligible = self.0.iter().filter(|(worker, _)| release.has_budget(**worker));
        let firsts = eligible.filter_map(|(_, keys_there)| keys_there.first());
        firsts.min().filter(|key| release.reaches(key.order.0))
    }
}

impl TenantQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.by_work.is_empty() && self.late.is_empty()
    }

    pub(super) fn insert(&mut self, number: u64, one: &Waiting) {
        let Some(held) = one.held else {
            self.by_work.insert((one.work, number), one.runs_us);
            self.by_start.insert((one.start_by_us, number), one.work);
            return;
        };
        let key = HeldKey::new(held.order, number);
        let cost = HeldCost {
            share: one.share,
            waits_for: held.waits_for,
        };
        self.held.insert(key, cost);
        match held.evaluated_at {
            Some(at) => {
                self.released(at);
                self.evaluated.insert(one.awaited_worker(), key);
            }
            None => {
                self.due.insert(key);
            }
        }
    }

    /// Removes a request. Returns whether it was marked for a sweep.
    pub(super) fn remove(&mut self, number: u64, one: &Waiting) -> bool {
        match one.held {
            None => {
                self.by_work.remove(&(one.work, number));
                self.by_start.remove(&(one.start_by_us, number));
                self.late.remove(&number);
                false
            }
            Some(Held { order, .. }) => {
                let key = HeldKey::new(order, number);
                self.held.remove(&key);
                let worker = one.awaited_worker();
                let _ = self.evaluated.remove(worker, key)
                    || self.fresh.remove(worker, key)
                    || self.due.remove(&key);
                self.marked.remove(&key)
            }
        }
    }

    /// Marks all held requests for a sweep. Returns their number.
    pub(super) fn mark_held(&mut self) -> usize {
        self.marked = self.held.keys().copied().collect();
        self.marked.len()
    }

    /// Returns whether a request of this queue is marked for a sweep.
    pub(super) fn is_marked(&self, number: u64, one: &Waiting) -> bool {
        let is_marked = |held: Held| self.marked.contains(&HeldKey::new(held.order, number));
        one.held.is_some_and(is_marked)
    }

    /// Returns the held requests that the tenant is served while its service is at most `until`: the worker that each
    /// waits for, and its work there. The tenant is at `level` now.
    pub(super) fn served_until(&self, level: f64, until: f64) -> impl Iterator<Item = (WorkerId, u32)> {
        let mut level = level;
        let served = self.held.values().take_while(move |cost| {
            let is_served = level <= until;
            level += cost.share;
            is_served
        });
        served.filter_map(|cost| cost.waits_for)
    }

    /// Makes requests due that were decided before so many capacity events.
    fn released(&mut self, releases: u64) {
        if self.evaluated_at < releases {
            self.evaluated_at = releases;
            self.fresh.take_over(&mut self.evaluated);
        }
    }

    /// Returns the next request at that time, when one leaves the queue every `step_us`. With `release`, a held request
    /// counts too, and with `is_sweep_due` one that is marked.
    pub(super) fn first(
        &mut self,
        now_us: u64,
        step_us: Option<u64>,
        releases: u64,
        release: Option<&CapacityEvent>,
        is_sweep_due: bool,
    ) -> Option<u64> {
        self.released(releases);
        let fresh = release.and_then(|release| self.fresh.first(release));
        let marked = self.marked.first().filter(|_| is_sweep_due);
        if let Some(key) = self.due.first().into_iter().chain(fresh).chain(marked).min() {
            return Some(key.number);
        }
        self.part_late(now_us);
        let shortest = self.by_work.first_key_value();
        let urgent = self.by_start.first_key_value();
        let (Some((&(_, shortest), &runs_us)), Some((&(start_by, urgent), _))) = (shortest, urgent) else {
            return self.late.first().copied();
        };
        let is_urgent = start_by < now_us.saturating_add(step_us.unwrap_or(runs_us));
        Some(if is_urgent { urgent } else { shortest })
    }

    /// Moves the requests whose time has run out to the late ones.
    fn part_late(&mut self, now_us: u64) {
        while let Some(first) = self.by_start.first_entry() {
            let (start_by, number) = *first.key();
            if start_by >= now_us {
                return;
            }
            self.by_work.remove(&(first.remove(), number));
            self.late.insert(number);
        }
    }
}

impl HeldKey {
    fn new(order: f64, number: u64) -> Self {
        Self {
            order: OrderKey::of(order),
            number,
        }
    }
}
