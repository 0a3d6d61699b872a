//! What each tenant was served, so that the one that was served least goes first.
//!
//! Counters of weighted tokens as in VTC (Sheng et al., OSDI 2024: an input token counts 1, an output token 2), charged when a
//! request goes in by what is expected of it and put right when it ends. Who was away is lifted to where the others are, as
//! start-time fair queueing does it (Goyal et al. 1996): idle time saves up nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::lane::Order;

/// Tenants that are told apart. Those that would be lifted anyway are forgotten first; beyond, new ones share a counter.
const MOST: usize = 4_096;

/// What so many tokens count.
#[must_use]
pub fn weighted_tokens(input: u64, output: u64) -> f64 {
    input as f64 + 2.0 * output as f64
}

/// The counters of all tenants.
#[derive(Debug)]
pub(super) struct Tenants {
    counters: HashMap<Arc<str>, f64>,
    /// The same, the least first.
    by_level: BTreeSet<(Order, Arc<str>)>,
    /// Where the last one stood that was let in.
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
    /// Under which name a tenant is counted.
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

    /// It has somebody in the queue again: what it did not use meanwhile is gone.
    pub(super) fn lift(&mut self, tenant: &Arc<str>) {
        self.set(tenant, self.level(tenant).max(self.floor));
    }

    /// What it was served, in weighted tokens over its weight; comparable between tenants that wait.
    pub(super) fn level(&self, tenant: &str) -> f64 {
        self.counters.get(tenant).copied().unwrap_or(self.floor)
    }

    /// One of its requests is let in, which was waiting.
    pub(super) fn serve(&mut self, tenant: &Arc<str>, share: f64) {
        let level = self.level(tenant);
        self.floor = self.floor.max(level);
        self.set(tenant, level + share);
    }

    /// One of its requests goes in without having waited; under which name it is counted. `share` is its weighted tokens over the
    /// tenant's weight.
    pub(super) fn pass(&mut self, tenant: &Arc<str>, share: f64) -> Arc<str> {
        let name = self.name(tenant);
        self.lift(&name);
        self.serve(&name, share);
        name
    }

    /// A request turned out to be so much more, or less, than was charged.
    pub(super) fn correct(&mut self, tenant: &Arc<str>, share: f64) {
        if share.is_finite() && self.counters.contains_key(tenant) {
            self.set(tenant, self.level(tenant) + share);
        }
    }

    fn set(&mut self, tenant: &Arc<str>, level: f64) {
        if let Some(before) = self.counters.insert(Arc::clone(tenant), level) {
            self.by_level.remove(&(Order::of(before), Arc::clone(tenant)));
        }
        self.by_level.insert((Order::of(level), Arc::clone(tenant)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_idle_has_saved_up_nothing() {
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
    fn tenants_are_bounded_and_those_who_would_be_lifted_are_forgotten_first() {
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
