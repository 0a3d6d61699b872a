//! Usage that routers share: the limits of clients, and the tenants and budgets of pools.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proxy::{ClientLimit, ClientShare, DebtExcess, PoolShare};
use replica_plane::UsageGroup;
use replicas::{UsageChange, UsageKey, UsageReading};

/// Steps of a tenant's service in one weighted token.
const SERVICE_STEPS: f64 = 16.0;
/// Maximum number of tenants whose names are kept.
const MOST_NAMES: usize = 1 << 13;

/// Limits of the clients.
pub(crate) struct ClientGroup {
    share: ClientShare,
    /// Hashed names of each client's counters, in the order of `share`.
    names: Vec<[u64; 3]>,
    by_name: HashMap<u64, ClientCounter>,
    excess: HashMap<u64, DebtExcess>,
    /// Time after which the others' messages have the use of this router.
    answered_after: Duration,
}

/// Counter of a client.
#[derive(Debug, Clone, Copy)]
struct ClientCounter {
    /// Place of the client in the share.
    at: usize,
    part: ClientPart,
}

/// Kind of a client's counter.
#[derive(Debug, Clone, Copy)]
enum ClientPart {
    /// Requests in progress.
    Running,
    /// Use of a limit per minute.
    Limit(ClientLimit),
}

/// Kinds of counters, in the order of their hashed names.
const PARTS: [ClientPart; 3] = [
    ClientPart::Running,
    ClientPart::Limit(ClientLimit::Requests),
    ClientPart::Limit(ClientLimit::Tokens),
];

/// Tenants of a pool, and its budgets.
pub(crate) struct TenantGroup {
    pool: PoolShare,
    group: u64,
    names: HashMap<u64, Arc<str>>,
}

impl ClientGroup {
    pub(crate) fn new(share: ClientShare, answered_after: Duration) -> Self {
        let parts = |name: &str| [0, 1, 2].map(|part| UsageKey::part_hash(name, part));
        let names: Vec<[u64; 3]> = share.names().map(parts).collect();
        let counters = names.iter().enumerate().flat_map(|(at, hashes)| {
            let parts = hashes.iter().zip(PARTS);
            parts.map(move |(hash, part)| (*hash, ClientCounter { at, part }))
        });
        Self {
            by_name: counters.collect(),
            excess: HashMap::new(),
            answered_after,
            share,
            names,
        }
    }
}

impl UsageGroup for ClientGroup {
    fn group(&self) -> u64 {
        UsageKey::hash("clients")
    }

    fn visit(&mut self, visit: &mut dyn FnMut(u64, UsageReading)) {
        for (at, hashes) in self.names.iter().enumerate() {
            for (hash, part) in hashes.iter().zip(PARTS) {
                match part {
                    ClientPart::Running => {
                        if let Some(running) = self.share.running(at) {
                            visit(*hash, UsageReading::Gauge(running.into()));
                        }
                    }
                    ClientPart::Limit(limit) => {
                        if let Some(used) = self.share.usage(at, limit) {
                            let (total, level, life) = (used.total_us, used.debt_us, used.life);
                            visit(*hash, UsageReading::Counter { total, level, life });
                        }
                    }
                }
            }
        }
    }

    fn apply(&mut self, name: u64, change: UsageChange) {
        let Some(ClientCounter { at, part }) = self.by_name.get(&name).copied() else {
            return;
        };
        match (part, change) {
            (ClientPart::Running, UsageChange::Gauge(sum)) => {
                let sum = u32::try_from(sum).unwrap_or(u32::MAX);
                self.share.set_running_elsewhere(at, sum);
            }
            (ClientPart::Limit(limit), UsageChange::Used(more)) => self.share.take_elsewhere(at, limit, more),
            (ClientPart::Limit(limit), UsageChange::Level(debt)) => {
                self.excess.remove(&name);
                self.share.adopt(at, limit, debt);
            }
            (ClientPart::Limit(limit), UsageChange::Known(debt)) => {
                let excess = self.excess.entry(name);
                let excess = excess.or_insert_with(|| DebtExcess::new(self.answered_after));
                self.share.compare(at, limit, debt, excess);
            }
            // A router of the same version sends each name as one kind.
            (ClientPart::Running, _) | (ClientPart::Limit(_), UsageChange::Gauge(_)) => {}
        }
    }

    fn divide(&self, routers: NonZeroU32) {
        self.share.divide(routers);
    }
}

impl TenantGroup {
    pub(crate) fn new(pool: PoolShare) -> Self {
        Self {
            group: UsageKey::part_hash(pool.name(), 1),
            pool,
            names: HashMap::new(),
        }
    }
}

impl UsageGroup for TenantGroup {
    fn group(&self) -> u64 {
        self.group
    }

    fn visit(&mut self, visit: &mut dyn FnMut(u64, UsageReading)) {
        if self.names.len() > MOST_NAMES {
            self.names.clear();
        }
        let (names, pool) = (&mut self.names, self.pool.life() << 32);
        self.pool.visit_tenants(|service| {
            let hash = UsageKey::hash(service.tenant);
            names.entry(hash).or_insert_with(|| Arc::clone(service.tenant));
            let total = (service.share.max(0.0) * SERVICE_STEPS) as u64;
            let (level, life) = (0, pool | u64::from(service.life));
            visit(hash, UsageReading::Counter { total, level, life });
        });
    }

    fn apply(&mut self, name: u64, change: UsageChange) {
        // Where only the level of the service is known, there is no service to charge.
        if let (UsageChange::Used(more), Some(tenant)) = (change, self.names.get(&name)) {
            self.pool.serve_elsewhere(tenant, more as f64 / SERVICE_STEPS);
        }
    }

    fn divide(&self, routers: NonZeroU32) {
        self.pool.divide_budgets(routers);
    }
}
