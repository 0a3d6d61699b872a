//! Fair queueing between tenants: the tenant with the least service goes first.
//!
//! Counters of weighted tokens as in VTC (Sheng et al., OSDI 2024: an input token counts 1, an output token 2), charged
//! by the expected size when a request is admitted, and corrected when it ends. A tenant that becomes active again is
//! raised to the others' virtual time, as in start-time fair queueing (Goyal et al. 1996): an idle tenant accumulates
//! no credit.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::order_key::OrderKey;

/// Tenants with a counter of their own. Those that would be raised anyway are dropped first; beyond, new ones share a
/// counter.
const MOST: usize = 4_096;

/// Returns the weight of so many tokens.
#[must_use]
pub fn weighted_tokens(input: u64, output: u64) -> f64 {
    input as f64 + 2.0 * output as f64
}

/// Service of a tenant in this router, for the other routers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TenantService<'t> {
    /// Name.
    pub tenant: &'t Arc<str>,
    /// Weighted tokens over the tenant's weight since the counter was made, less the returned charges.
    pub share: f64,
    /// Number of the counter: one that was dropped and made again has another.
    pub life: u32,
}

/// The counters of all tenants.
#[derive(Debug)]
pub(super) struct Tenants {
    counters: HashMap<Arc<str>, TenantCounter>,
    /// Tenants by level, the least first.
    by_level: BTreeSet<(OrderKey, Arc<str>)>,
    /// Virtual time: the level of the last tenant that was admitted.
    floor: f64,
    shared: Arc<str>,
    /// Number of counters that were made. It wraps around.
    made: u32,
}

/// Counter of a tenant.
#[derive(Debug, Clone, Copy)]
struct TenantCounter {
    /// Service of all routers, as far as known; raised to the virtual time after idleness.
    level: f64,
    /// Service of this router since the counter was made.
    own: f64,
    /// Number of the counter.
    life: u32,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            counters: HashMap::new(),
            by_level: BTreeSet::new(),
            floor: 0.0,
            shared: "".into(),
            made: 0,
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

    /// Returns the name under which the tenant's next request is counted, as [`Self::name`] without its effect.
    pub(super) fn counted_name<'t>(&'t self, tenant: &'t str) -> &'t str {
        let Some(beyond) = self.counters.len().checked_sub(MOST) else {
            return tenant;
        };
        let last_dropped = self.by_level.iter().nth(beyond);
        let has_room = last_dropped.is_some_and(|(level, _)| level.0 <= self.floor);
        if has_room || self.counters.contains_key(tenant) {
            tenant
        } else {
            &self.shared
        }
    }

    /// Raises a tenant that has a request in the queue again to the others' virtual time. Returns its service.
    pub(super) fn lift(&mut self, tenant: &Arc<str>) -> f64 {
        let floor = self.floor;
        let lifted = self.update(tenant, |counter| counter.level = counter.level.max(floor));
        lifted.unwrap_or_else(|| self.insert(tenant, 0.0))
    }

    /// Returns a tenant's service in weighted tokens over its weight; comparable between tenants that wait.
    pub(super) fn level(&self, tenant: &str) -> f64 {
        let counter = self.counters.get(tenant);
        counter.map_or(self.floor, |counter| counter.level)
    }

    /// Returns the service of a tenant as of one that has a request in the queue: raised to the virtual time.
    pub(super) fn raised_level(&self, tenant: &str) -> f64 {
        self.level(tenant).max(self.floor)
    }

    /// Charges a tenant for a request that was admitted from the queue. Returns its service.
    pub(super) fn serve(&mut self, tenant: &Arc<str>, share: f64) -> f64 {
        self.floor = self.floor.max(self.level(tenant));
        self.charge(tenant, share)
    }

    /// Charges a tenant for a request that is decided, and may be held again. Returns its service.
    pub(super) fn charge(&mut self, tenant: &Arc<str>, share: f64) -> f64 {
        let charged = self.update(tenant, |counter| counter.charge(share));
        charged.unwrap_or_else(|| self.insert(tenant, share))
    }

    /// Moves the virtual time to the service of a tenant before a charged request.
    pub(super) fn advance(&mut self, tenant: &str, share: f64) {
        self.floor = self.floor.max(self.level(tenant) - share);
    }

    /// Charges a tenant for a request that was admitted without waiting. Returns the name under which it is counted,
    /// and its service. `share` is its weighted tokens over the tenant's weight.
    pub(super) fn pass(&mut self, tenant: &Arc<str>, share: f64) -> (Arc<str>, f64) {
        let name = self.name(tenant);
        self.lift(&name);
        let level = self.serve(&name, share);
        (name, level)
    }

    /// Corrects the charge by the difference to a request's true size. Returns the tenant's service if it has a
    /// counter.
    pub(super) fn correct(&mut self, tenant: &Arc<str>, share: f64) -> Option<f64> {
        if !share.is_finite() {
            return None;
        }
        self.update(tenant, |counter| counter.charge(share))
    }

    /// Charges a tenant for requests that other routers admitted. A tenant without a counter starts at the virtual time
    /// anyway. Returns its service if it has a counter.
    pub(super) fn serve_elsewhere(&mut self, tenant: &Arc<str>, share: f64) -> Option<f64> {
        if !share.is_finite() {
            return None;
        }
        self.update(tenant, |counter| counter.level += share)
    }

    /// Calls `visit` with each tenant that has a counter.
    pub(super) fn visit(&self, mut visit: impl FnMut(TenantService<'_>)) {
        for (tenant, counter) in &self.counters {
            visit(TenantService {
                tenant,
                share: counter.own,
                life: counter.life,
            });
        }
    }

    /// Changes a tenant's counter, and its place among the others. Returns its service; `None` if it has no counter.
    fn update(&mut self, tenant: &Arc<str>, change: impl FnOnce(&mut TenantCounter)) -> Option<f64> {
        let counter = self.counters.get_mut(tenant)?;
        let before = OrderKey::of(counter.level);
        change(counter);
        let (level, after) = (counter.level, OrderKey::of(counter.level));
        if before != after {
            let mut place = (before, Arc::clone(tenant));
            self.by_level.remove(&place);
            place.0 = after;
            self.by_level.insert(place);
        }
        Some(level)
    }

    /// Adds the counter of a tenant that has none, from the virtual time on, with its first charge. Returns its
    /// service.
    fn insert(&mut self, tenant: &Arc<str>, share: f64) -> f64 {
        let counter = TenantCounter {
            level: self.floor + share,
            own: share,
            life: self.made,
        };
        self.made = self.made.wrapping_add(1);
        self.by_level
            .insert((OrderKey::of(counter.level), Arc::clone(tenant)));
        self.counters.insert(Arc::clone(tenant), counter);
        counter.level
    }
}

impl TenantCounter {
    fn charge(&mut self, share: f64) {
        self.level += share;
        self.own += share;
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
    fn service_of_other_routers_counts_for_the_order_and_not_as_the_own() {
        let mut tenants = Tenants::default();
        let [here, there, new]: [Arc<str>; 3] = ["here".into(), "there".into(), "new".into()];
        tenants.pass(&here, 10.0);
        tenants.pass(&there, 10.0);
        tenants.serve_elsewhere(&there, 500.0);
        tenants.serve_elsewhere(&new, 500.0);
        tenants.correct(&here, 2.0);
        assert!(tenants.level("there") > tenants.level("here"));
        assert_eq!(tenants.level("new"), tenants.floor, "it has no counter yet");
        let mut own = Vec::new();
        tenants.visit(|service| own.push((service.tenant.to_string(), service.share)));
        own.sort_by(|one, two| one.0.cmp(&two.0));
        assert_eq!(own, [("here".to_owned(), 12.0), ("there".to_owned(), 10.0)]);
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
        assert_eq!(tenants.counted_name(&late), &*late);
        assert_eq!(tenants.name(&late), late);
    }

    #[test]
    fn a_counter_that_was_dropped_and_made_again_has_another_number() {
        let mut tenants = Tenants::default();
        let back: Arc<str> = "back".into();
        let life = |tenants: &Tenants| {
            let mut life = None;
            tenants.visit(|service| life = life.or((**service.tenant == *"back").then_some(service.life)));
            life
        };
        tenants.pass(&back, 1.0);
        let first = life(&tenants);
        tenants.floor = 10.0;
        for number in 0..MOST {
            tenants.pass(&format!("t{number}").into(), 100.0);
        }
        assert_eq!(life(&tenants), None, "dropped");
        tenants.floor = 1_000.0;
        tenants.pass(&back, 1.0);
        assert!(first.is_some() && life(&tenants).is_some());
        assert_ne!(life(&tenants), first);
    }

    #[test]
    fn the_counted_name_of_a_tenant_beyond_the_bound_is_the_shared_one() {
        let mut tenants = Tenants::default();
        for number in 0..MOST {
            tenants.charge(&format!("t{number}").into(), 1.0);
        }
        let late: Arc<str> = "late".into();
        assert_eq!(tenants.counted_name("t7"), "t7");
        assert_eq!(tenants.counted_name(&late), "");
        assert_eq!(&*tenants.name(&late), "");
    }
}
