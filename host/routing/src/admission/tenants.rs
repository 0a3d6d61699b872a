//! Fair queueing between tenants: the tenant with the least service goes first.
//!
//! Counters of weighted tokens as in VTC (Sheng et al., OSDI 2024: an input token counts 1, an output token 2), charged
//! by the expected size when a request is admitted, and corrected when it ends. A tenant that becomes active again is
//! raised to the others' virtual time, as in start-time fair queueing (Goyal et al. 1996): an idle tenant accumulates
//! no credit.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::tenant_queue::OrderKey;

/// Tenants with a counter of their own. Those that would be raised anyway are dropped first; beyond, new ones share a
/// counter.
const MOST: usize = 4_096;

/// Returns the weight of so many tokens.
#[must_use]
pub fn weighted_tokens(input: u64, output: u64) -> f64 {
    input as f64 + 2.0 * output as f64
}

/// The counters of all tenants.
#[derive(Debug)]
pub(super) struct Tenants {
    counters: HashMap<Arc<str>, f64>,
    /// Tenants by level, the least first.
    by_level: BTreeSet<(OrderKey, Arc<str>)>,
    /// Virtual time: the level of the last tenant that was admitted.
    floor: f64,
    shared: Arc<str>,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            counters: HashMap::new(),
            by_level: BTreeSet::new(),
            floor: 0.0,
            shared: "".into(),
        }
    }
}

impl Tenants {
    /// Returns the name under which a tenant is counted.
    pub(super) fn name(&mut self, tenant: &Arc<str>) -> Arc<str> {
        if self.counters.contains_key(tenant) {
            return Arc::clone(tenant);
        }
        while self.counters.len() >= MOST {
            let floor = self.floor;
            let least = self.by_level.first().filter(|(level, _)| level.0 <= floor);
            let Some(least) = least.cloned() else {
                return Arc::clone(&self.shared);
            };
            self.by_level.remove(&least);
            self.counters.remove(&least.1);
        }
        Arc::clone(tenant)
    }

    /// Raises a tenant that has a request in the queue again to the others' virtual time.
    pub(super) fn lift(&mut self, tenant: &Arc<str>) {
        self.set(tenant, self.level(tenant).max(self.floor));
    }

    /// Returns a tenant's service in weighted tokens over its weight; comparable between tenants that wait.
    pub(super) fn level(&self, tenant: &str) -> f64 {
        self.counters.get(tenant).copied().unwrap_or(self.floor)
    }

    /// Charges a tenant for a request that was admitted from the queue.
    pub(super) fn serve(&mut self, tenant: &Arc<str>, share: f64) {
        let level = self.level(tenant);
        self.floor = self.floor.max(level);
        self.set(tenant, level + share);
    }

    /// Charges a tenant for a request that was admitted without waiting. Returns the name under which it is counted.
    /// `share` is its weighted tokens over the tenant's weight.
    pub(super) fn pass(&mut self, tenant: &Arc<str>, share: f64) -> Arc<str> {
        let name = self.name(tenant);
        self.lift(&name);
        self.serve(&name, share);
        name
    }

    /// Corrects the charge by the difference to a request's true size.
    pub(super) fn correct(&mut self, tenant: &Arc<str>, share: f64) {
        if share.is_finite() && self.counters.contains_key(tenant) {
            self.set(tenant, self.level(tenant) + share);
        }
    }

    fn set(&mut self, tenant: &Arc<str>, level: f64) {
        if let Some(before) = self.counters.insert(Arc::clone(tenant), level) {
            self.by_level.remove(&(OrderKey::of(before), Arc::clone(tenant)));
        }
        self.by_level.insert((OrderKey::of(level), Arc::clone(tenant)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_tenant_accumulates_no_credit() {
        let mut tenants = Tenants::default();
        let (busy, idle): (Arc<str>, Arc<str>) = ("busy".into(), "idle".into());
        for _ in 0..100 {
            tenants.pass(&busy, 10.0);
        }
        tenants.lift(&idle);
        assert_eq!(tenants.level("idle"), 990.0);
        assert_eq!(tenants.level("busy"), 1_000.0);
    }

    #[test]
    fn tenants_are_bounded_and_those_that_would_be_raised_are_dropped_first() {
        let mut tenants = Tenants::default();
        for number in 0..3 * MOST {
            tenants.pass(&format!("t{number}").into(), 1.0);
            assert!(tenants.counters.len() <= MOST + 1, "and the shared one");
            assert_eq!(tenants.counters.len(), tenants.by_level.len());
        }
        let late: Arc<str> = "late".into();
        tenants.floor = 10_000.0;
        assert_eq!(tenants.name(&late), late);
    }
}
