//! Active snapshot, in an `ArcSwap`. Only here does a snapshot change state that outlives it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use routing::{Role, WorkerId};

use super::{Snapshot, SnapshotPlan};
use crate::dispatch::pool_state::PoolState;
use crate::limits::admission::Capacity;
use crate::limits::edge_settings::EdgeSettings;
use crate::limits::memory::MemoryStage;
use crate::observe::events::EventWorkers;
use crate::request::metrics::ProxyMetrics;
use crate::request::route::Route;

/// Cell of the active snapshot. Readers load it without waiting. The only writer is the composition root.
#[derive(Debug)]
pub struct SnapshotCell {
    current: ArcSwap<Snapshot>,
}

impl SnapshotCell {
    /// Makes a cell with its first snapshot.
    #[must_use]
    pub fn new(first: SnapshotPlan, metrics: &ProxyMetrics) -> Self {
        let first = first.build(None, metrics);
        let workers = first.event_workers();
        first
            .settings
            .events
            .prepare(&EventWorkers::new(), &workers, first.event_listeners());
        first.set_rules();
        let current = Arc::new(first);
        current.set_current();
        current.activate_budgets();
        Self {
            current: ArcSwap::new(current),
        }
    }

    /// Returns the active snapshot.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Returns limits, TLS and CORS for a connection that has no request yet.
    pub(crate) fn edge(&self) -> Arc<EdgeSettings> {
        Arc::clone(&self.current.load().edge)
    }

    /// Makes a plan's snapshot the active one for new requests. Requests under way keep theirs, but
    /// waiting ones move to the present workers and policies. This cannot fail.
    pub fn store(&self, plan: SnapshotPlan) {
        let before = self.current.load_full();
        let next = Arc::new(plan.build(Some(&before), &before.metrics));
        let (were, are) = (before.event_workers(), next.event_workers());
        next.settings.events.prepare(&were, &are, next.event_listeners());
        next.set_rules();
        next.note_moved(&before);
        self.current.store(Arc::clone(&next));
        // Before the old workers drain: a request that is left without one finds the pool's new state.
        next.set_current();
        next.retire_gone(&before);
        next.settings.events.part(&were, &are);
        next.notify_of_policies(&before);
        next.activate_budgets();
        let stay: HashSet<&str> = next.members().map(|member| &*member.worker.spec().name).collect();
        let were: HashSet<&str> = before
            .members()
            .map(|member| &*member.worker.spec().name)
            .collect();
        for gone in were.difference(&stay) {
            next.metrics.fleet.forget_worker(gone);
        }
        for gone in before.clients.gone(&next.clients) {
            next.metrics.limits.clients.forget(gone);
        }
    }
}

impl Snapshot {
    /// Sends the rules of this snapshot to what outlives snapshots: the workers' health and connections, the bodies of
    /// clients, and the cache of the tokenizers.
    fn set_rules(&self) {
        for pool in &self.pools {
            for member in &pool.workers.members {
                let name = &member.worker.spec().name;
                member.link.health.set_rules(&pool.workers.checks.health, name);
                member
                    .link
                    .upstream
                    .configure(&pool.workers.connections, &self.edge.via);
            }
        }
        self.edge.bodies.set_limits(self.edge.totals);
        self.edge.memory.set_limit(self.edge.totals.memory);
        self.tokenizing.set_limits();
    }

    /// Makes the pools and the policies those that waiting requests move to.
    fn set_current(&self) {
        for pool in &self.pools {
            pool.current.set(pool);
        }
        // The first of several routes with the same conditions takes the requests.
        for route in self.routes.iter().rev() {
            route.policies.current.set(&route.policies);
        }
    }

    /// Lets the pools keep count of their requests at workers that move to another pool. Not of those that several
    /// pools had: their requests are not counted by pool.
    fn note_moved(&self, before: &Self) {
        let mut pools_of: HashMap<WorkerId, usize> = HashMap::new();
        for member in before.pools.iter().flat_map(|pool| &pool.workers.members) {
            *pools_of.entry(member.worker.id()).or_default() += 1;
        }
        let stays: HashSet<WorkerId> = self.members().map(|member| member.worker.id()).collect();
        for pool in &self.pools {
            let name = &pool.workers.name;
            let Some(was) = before.pools.iter().find(|was| was.workers.name == *name) else {
                continue;
            };
            let are: HashSet<WorkerId> = pool
                .workers
                .members
                .iter()
                .map(|member| member.worker.id())
                .collect();
            for member in &was.workers.members {
                let id = member.worker.id();
                let has_moved = stays.contains(&id) && !are.contains(&id) && pools_of.get(&id) == Some(&1);
                if has_moved && member.worker.spec().role != Role::Prefill {
                    // Of pools that had it before and follow their workers, while their requests run.
                    let pools = before.pools.iter().map(|pool| &pool.queue.controller);
                    let others = pools.filter(|other| !Arc::ptr_eq(other, &was.queue.controller));
                    let of_others = others.map(|other| other.moved(id)).sum();
                    was.queue.controller.moves(&member.worker, of_others);
                }
            }
        }
    }

    /// Lets the workers drain that the pools of this snapshot no longer have. Nothing takes the place of the workers
    /// of a pool that is gone itself, so its waiting requests still go there.
    fn retire_gone(&self, before: &Self) {
        let stays: HashSet<WorkerId> = self.members().map(|member| member.worker.id()).collect();
        let is_here = |pool: &PoolState| self.worker_pools().any(|here| here.name == pool.workers.name);
        for pool in before.pools.iter().filter(|pool| is_here(pool)) {
            for member in &pool.workers.members {
                if !stays.contains(&member.worker.id()) {
                    member.link.health.retire();
                }
            }
        }
    }

    /// Lets the held requests of each pool be decided again where other policies than `before` decide on a route to it.
    fn notify_of_policies<'a>(&'a self, before: &'a Self) {
        // The same key as that of waiting requests, which find the present policies by it. The first of several routes
        // with the same conditions takes the requests.
        let key = |route: &Route| Arc::as_ptr(&route.policies.current);
        let deciding = |routes: &'a [Route]| -> HashMap<_, &'a Route> {
            routes.iter().rev().map(|route| (key(route), route)).collect()
        };
        let (were, are) = (deciding(&before.routes), deciding(&self.routes));
        let changed = are.iter().filter(|(key, route)| {
            let was = were.get(*key);
            was.is_some_and(|was| !route.policies.decides_as(&was.policies))
        });
        for pool in changed.map(|(_, route)| route.pool).collect::<HashSet<usize>>() {
            self.pools[pool].queue.controller.policies_changed();
        }
    }

    /// Activates the budgets of the pools.
    fn activate_budgets(&self) {
        for pool in &self.pools {
            let capacity = pool.queue.admission.as_ref().map(|admission| {
                let members = pool.workers.members.iter();
                let workers = members.map(|member| (&member.worker, &member.link));
                Capacity::new(&admission.spec, workers)
            });
            pool.queue.controller.activate(capacity.unwrap_or_default());
        }
    }

    /// Shrinks caches that can be rebuilt to the size that a memory stage leaves them.
    pub(crate) fn shrink_caches(&self, stage: MemoryStage) {
        self.tokenizing.shrink(stage);
    }
}
