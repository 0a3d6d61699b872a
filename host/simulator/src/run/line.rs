//! Requests that the router holds, in the order that the policy gave them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

/// Held requests.
#[derive(Debug, Default)]
pub(super) struct Line {
    order: BTreeMap<Key, usize>,
    keys: HashMap<usize, Key>,
    held: u64,
}

/// The policy's order; of equals the one that is there longer.
#[derive(Debug, Clone, Copy)]
struct Key {
    order: f64,
    since: u64,
}

impl Line {
    pub(super) fn hold(&mut self, request: usize, order: f64) {
        let since = self.keys.get(&request).map_or(self.held, |key| key.since);
        self.held += 1;
        self.leave(request);
        let key = Key { order, since };
        self.order.insert(key, request);
        self.keys.insert(request, key);
    }

    pub(super) fn leave(&mut self, request: usize) {
        if let Some(key) = self.keys.remove(&request) {
            self.order.remove(&key);
        }
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.order.first_key_value().map(|(_, request)| *request)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
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
        let mut line = Line::default();
        for (request, order) in [(1, 2.0), (2, 1.0), (3, 1.0), (2, 1.0)] {
            line.hold(request, order);
        }
        assert_eq!(line.len(), 3);
        let mut left = Vec::new();
        while let Some(first) = line.first() {
            line.leave(first);
            left.push(first);
        }
        assert_eq!(left, [2, 3, 1]);
    }
}
