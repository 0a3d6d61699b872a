//! Queue of held requests, in their policies' order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use routing::{CapacityEvent, DeferredEvent, ElsewherePace, PacedEvent, WorkerId};

/// Held requests, each with the worker that it waits for.
#[derive(Debug, Default)]
pub(super) struct HeldQueue {
    order: BTreeMap<Key, (usize, Option<WorkerId>)>,
    keys: HashMap<usize, Key>,
    held: u64,
    pace: ElsewherePace,
    /// Event for the requests that had no budget.
    deferred: Option<CapacityEvent>,
}

/// A held request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HeldRequest {
    pub(super) number: usize,
    /// The worker that it waits for.
    pub(super) waits_for: Option<WorkerId>,
    /// The policy's order.
    pub(super) order: f64,
}

/// Key of the policy's order. Of equal requests, the one that waits longer comes first.
#[derive(Debug, Clone, Copy)]
struct Key {
    order: f64,
    since: u64,
}

impl HeldQueue {
    pub(super) fn hold(&mut self, request: usize, order: f64, waits_for: Option<WorkerId>) {
        let since = self.keys.get(&request).map_or(self.held, |key| key.since);
        self.held += 1;
        self.leave(request);
        let key = Key { order, since };
        self.order.insert(key, (request, waits_for));
        self.keys.insert(request, key);
    }

    pub(super) fn leave(&mut self, request: usize) {
        if let Some(key) = self.keys.remove(&request) {
            self.order.remove(&key);
        }
    }

    /// Returns a capacity event with the budget that it has at that time, and when a deferred one is due.
    pub(super) fn paced(&mut self, event: CapacityEvent, now_us: u64) -> (CapacityEvent, Option<u64>) {
        if self.order.is_empty() {
            return (event, None);
        }
        let PacedEvent { now, later } = self.pace.apply(event, now_us);
        if let Some(DeferredEvent { event, .. }) = later {
            self.deferred = Some(event);
        }
        (now, later.map(|later| later.at_us))
    }

    /// Returns the deferred event that is due at that time.
    pub(super) fn take_deferred(&mut self, now_us: u64) -> Option<CapacityEvent> {
        self.pace.take_deferred(now_us).then(|| self.deferred.take())?
    }

    pub(super) fn has(&self, request: usize) -> bool {
        self.keys.contains_key(&request)
    }

    /// Returns all of them, in order.
    pub(super) fn in_order(&self) -> Vec<HeldRequest> {
        let one = |(key, (number, waits_for)): (&Key, &(usize, Option<WorkerId>))| HeldRequest {
            number: *number,
            waits_for: *waits_for,
            order: key.order,
        };
        self.order.iter().map(one).collect()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order
            .total_cmp(&other.order)
            .then(self.since.cmp(&other.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_comes_first_and_of_equals_the_one_that_waits_longer() {
        let mut line = HeldQueue::default();
        for (request, order) in [(1, 2.0), (2, 1.0), (3, 1.0), (2, 1.0)] {
            line.hold(request, order, None);
        }
        let numbers =
            |line: &HeldQueue| -> Vec<usize> { line.in_order().iter().map(|held| held.number).collect() };
        assert_eq!(numbers(&line), [2, 3, 1]);
        line.leave(3);
        assert_eq!(numbers(&line), [2, 1]);
        assert!(line.has(1) && !line.has(3));
    }
}
