//! Order of requests and of tenants: a number with a total order.

use std::cmp::Ordering;

/// A number that things are ordered by: a policy's, or a tenant's level.
#[derive(Debug, Clone, Copy)]
pub(super) struct OrderKey(pub(super) f64);

impl OrderKey {
    pub(super) fn of(order: f64) -> Self {
        // Adding 0.0 makes of -0.0 the 0.0 it equals.
        Self(order + 0.0)
    }
}

impl Ord for OrderKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for OrderKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for OrderKey {}
