//! What each tenant was served, so that the one that was served least goes first.
//!
//! Counters of weighted tokens as in VTC (Sheng et al., OSDI 2024: an input token counts 1, an output token 2), charged when a
//! request goes in by what is expected of it and put right when it ends. Who was away is lifted to where the others are, as
//! start-time fair queueing does it (Goyal et al. 1996): idle time saves up nothing.

use std::collections::HashMap;
use std::sync::Arc;

/// Tenants that are told apart. Those that would be lifted anyway are forgotten first; beyond, new ones share a counter.
const MOST: usize = 4_096;

/// What so many tokens count.
#[must_use]
pub fn weighted_tokens(input: u64, output: u64) -> f64 {
    input as f64 + 2.0 * output as f64
}

/// The counters of all tenants.
#[derive(Debug)]
pub struct Tenants {
    counters: HashMap<Arc<str>, f64>,
    /// Where the last one stood that was let in.
    floor: f64,
    shared: Arc<str>,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            counters: HashMap::new(),
            floor: 0.0,
            shared: "".into(),
        }
    }
}

impl Tenants {
    /// Whether any was charged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Under which name a tenant is counted.
    pub(super) fn name(&mut self, tenant: &Arc<str>) -> Arc<str> {
        if self.counters.len() < MOST || self.counters.contains_key(tenant) {
            return Arc::clone(tenant);
        }
        let floor = self.floor;
        self.counters.retain(|_, counter| *counter > floor);
        let is_room = self.counters.len() < MOST;
        Arc::clone(if is_room { tenant } else { &self.shared })
    }

    /// It has somebody in the queue again: what it did not use meanwhile is gone.
    pub(super) fn lift(&mut self, tenant: &Arc<str>) {
        let floor = self.floor;
        let counter = self.counters.entry(Arc::clone(tenant)).or_insert(floor);
        *counter = counter.max(floor);
    }

    /// What it was served, in weighted tokens over its weight; comparable between tenants that wait.
    #[must_use]
    pub fn level(&self, tenant: &str) -> f64 {
        self.counters.get(tenant).copied().unwrap_or(self.floor)
    }

    /// One of its requests is let in, which was waiting.
    pub(super) fn serve(&mut self, tenant: &Arc<str>, share: f64) {
        let counter = self.counters.entry(Arc::clone(tenant)).or_insert(self.floor);
        self.floor = self.floor.max(*counter);
        *counter += share;
    }

    /// One of its requests goes in without having waited; `share` is its weighted tokens over the tenant's weight.
    pub fn pass(&mut self, tenant: &Arc<str>, share: f64) {
        let name = self.name(tenant);
        self.lift(&name);
        self.serve(&name, share);
    }

    /// A request turned out to be so much more, or less, than was charged.
    pub fn correct(&mut self, tenant: &str, share: f64) {
        let counter = self.counters.get_mut(tenant);
        if let Some(counter) = counter.filter(|_| share.is_finite()) {
            *counter += share;
        }
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
        }
        let late: Arc<str> = "late".into();
        tenants.floor = 10_000.0;
        assert_eq!(tenants.name(&late), late);
    }
}
