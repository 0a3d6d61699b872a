//! The waiting requests of one tenant in one class, in order.
//!
//! First those that a policy held, in the order it gave them; then the shortest, but for one whose time runs out: if the one
//! with the least slack would come too late by letting the shortest go first, it goes. Who is too late already goes last.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::line::{Held, Waiting};
use super::release::Release;
use crate::id::WorkerId;

/// By a policy's order, then by arrival.
type ByOrder = BTreeSet<(Order, u64)>;

/// The same, by the worker they wait for.
#[derive(Debug, Default)]
struct ByAim(HashMap<Option<WorkerId>, ByOrder>);

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Held, and to be asked again as soon as there is room.
    due: ByOrder,
    /// Held, and to be asked again for a release that it is worth it.
    fresh: ByAim,
    /// Held, and asked since the last release.
    asked: ByAim,
    /// How many releases there were when those were asked.
    asked_at: u64,
    /// The others by their work, with the time it takes; and by when they have to begin, with their work.
    by_work: BTreeMap<(u64, u64), u64>,
    by_start: BTreeMap<(u64, u64), u64>,
    /// Of the others, those that are too late, by arrival.
    late: BTreeSet<u64>,
}

/// A number that things are ordered by: a policy's, or a tenant's level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order(pub(super) f64);

impl ByAim {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn insert(&mut self, aim: Option<WorkerId>, key: (Order, u64)) {
        self.0.entry(aim).or_default().insert(key);
    }

    fn remove(&mut self, aim: Option<WorkerId>, key: &(Order, u64)) -> bool {
        let Some(of_aim) = self.0.get_mut(&aim) else {
            return false;
        };
        let was_there = of_aim.remove(key);
        if of_aim.is_empty() {
            self.0.remove(&aim);
        }
        was_there
    }

    /// Takes over all of another, at the cost of the smaller of the two.
    fn take_over(&mut self, other: &mut Self) {
        for (aim, mut keys) in other.0.drain() {
            let of_aim = self.0.entry(aim).or_default();
            if of_aim.len() < keys.len() {
                std::mem::swap(of_aim, &mut keys);
            }
            of_aim.extend(keys);
        }
    }

    /// The first of those that are asked for that release.
    fn first(&self, release: &Release) -> Option<&(Order, u64)> {
        let asked = self.0.iter().filter(|(aim, _)| release.asks(**aim));
        asked.filter_map(|(_, of_aim)| of_aim.first()).min()
    }
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        let held = self.due.is_empty() && self.fresh.is_empty() && self.asked.is_empty();
        held && self.by_work.is_empty() && self.late.is_empty()
    }

    pub(super) fn insert(&mut self, number: u64, one: &Waiting) {
        match one.held {
            None => {
                self.by_work.insert((one.work, number), one.runs_us);
                self.by_start.insert((one.start_by_us, number), one.work);
            }
            Some(Held {
                order,
                asked_at: Some(at),
                ..
            }) => {
                self.released(at);
                self.asked.insert(one.aim(), (Order::of(order), number));
            }
            Some(Held {
                order,
                asked_at: None,
                ..
            }) => {
                self.due.insert((Order::of(order), number));
            }
        }
    }

    pub(super) fn remove(&mut self, number: u64, one: &Waiting) {
        match one.held {
            None => {
                self.by_work.remove(&(one.work, number));
                self.by_start.remove(&(one.start_by_us, number));
                self.late.remove(&number);
            }
            Some(Held { order, .. }) => {
                let key = (Order::of(order), number);
                let aim = one.aim();
                let _ = self.asked.remove(aim, &key) || self.fresh.remove(aim, &key) || self.due.remove(&key);
            }
        }
    }

    /// Those that were asked before so many releases may be asked again.
    fn released(&mut self, releases: u64) {
        if self.asked_at < releases {
            self.asked_at = releases;
            self.fresh.take_over(&mut self.asked);
        }
    }

    /// Who goes next at that time, when one leaves the queue every `step_us`. `release`: also one that is asked for that.
    pub(super) fn first(
        &mut self,
        now_us: u64,
        step_us: Option<u64>,
        releases: u64,
        release: Option<&Release>,
    ) -> Option<u64> {
        self.released(releases);
        let fresh = release.and_then(|release| self.fresh.first(release));
        if let Some((_, number)) = self.due.first().into_iter().chain(fresh).min() {
            return Some(*number);
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

    /// Those whose time has run out are late.
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

impl Order {
    pub(super) fn of(order: f64) -> Self {
        // Adding 0.0 makes of -0.0 the 0.0 it equals.
        Self(order + 0.0)
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Order {}
