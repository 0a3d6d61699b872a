//! Pools and workers of the active configuration, as the exchange shares them.

use std::collections::HashMap;
use std::sync::Arc;

use replicas::{SharedWorker, WorkerKey};
use routing::{HeldSummary, WorkerId, hash_mix};

use crate::source::SharedPool;

/// Pools and workers of the active configuration.
#[derive(Debug)]
pub(crate) struct SharedFleet<P> {
    /// Number of the configuration; `None` before the first.
    pub(crate) generation: Option<u64>,
    pub(crate) pools: Vec<P>,
    /// Workers by pool. A worker of two pools is there twice, with one id and one load.
    pub(crate) workers: Vec<SharedWorker>,
    /// Places of each worker's pools.
    pools_of: HashMap<WorkerId, Vec<usize>>,
    /// Hash of pools and workers, whatever their order.
    pub(crate) hash: String,
}

/// Workers at which other routers freed capacity, by pool.
#[derive(Debug)]
pub(crate) struct FreedByPool {
    /// Place of the pool of each of the workers, in order.
    pools: Vec<usize>,
    workers: Vec<WorkerId>,
}

impl<P> Default for SharedFleet<P> {
    fn default() -> Self {
        Self {
            generation: None,
            pools: Vec::new(),
            workers: Vec::new(),
            pools_of: HashMap::new(),
            hash: String::new(),
        }
    }
}

impl<P: SharedPool> SharedFleet<P> {
    /// Returns the fleet of a configuration.
    pub(crate) fn new(generation: u64, pools: Vec<P>) -> Self {
        let (mut workers, mut pools_of) = (Vec::new(), HashMap::<WorkerId, Vec<usize>>::new());
        for (at, pool) in pools.iter().enumerate() {
            for worker in pool.workers() {
                let (spec, id) = (worker.spec(), worker.id());
                let key = WorkerKey::of(pool.name(), &spec.url, spec.rank.map(|rank| rank.0));
                pools_of.entry(id).or_default().push(at);
                let load = Arc::clone(worker.load());
                workers.push(SharedWorker { key, id, load });
            }
        }
        Self {
            generation: Some(generation),
            pools,
            hash: hash_of(workers.iter().map(|worker| worker.key)),
            workers,
            pools_of,
        }
    }

    /// Returns the own held requests by worker, of all of its pools; `None` if no pool has any.
    pub(crate) fn held(&self) -> Option<HashMap<WorkerId, HeldSummary>> {
        let mut queues = self.pools.iter().filter(|pool| pool.queued() > 0).peekable();
        queues.peek()?;
        let mut held: HashMap<WorkerId, HeldSummary> = HashMap::new();
        for pool in queues {
            pool.summarize_waiters(&mut |worker, summary| held.entry(worker).or_default().add_all(summary));
        }
        Some(held)
    }

    /// Returns these workers by pool. A worker of two pools is in both.
    pub(crate) fn by_pool(&self, freed: &[WorkerId]) -> FreedByPool {
        let pools_of = |worker: &WorkerId| {
            let pools = self.pools_of.get(worker).into_iter().flatten();
            let worker = *worker;
            pools.map(move |pool| (*pool, worker))
        };
        let mut by_pool: Vec<(usize, WorkerId)> = freed.iter().flat_map(pools_of).collect();
        by_pool.sort_unstable();
        by_pool.dedup();
        let (pools, workers) = by_pool.into_iter().unzip();
        FreedByPool { pools, workers }
    }
}

impl FreedByPool {
    /// Returns the workers of the pool at this place.
    pub(crate) fn of(&self, at: usize) -> &[WorkerId] {
        let begin = self.pools.partition_point(|pool| *pool < at);
        let end = self.pools.partition_point(|pool| *pool <= at);
        &self.workers[begin..end]
    }
}

/// Returns the hash of a fleet's workers. It is a sum: workers that were added over HTTP have another order at a router
/// that restarted.
fn hash_of(workers: impl Iterator<Item = WorkerKey>) -> String {
    let hash = workers.fold(0_u64, |sum, key| sum.wrapping_add(hash_mix(key.0)));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_workers_makes_no_difference_to_the_hash() {
        let hash = |keys: &[u64]| hash_of(keys.iter().map(|key| WorkerKey(*key)));
        assert_eq!(hash(&[1, 2, 3]), hash(&[3, 1, 2]));
        assert_ne!(hash(&[1, 2, 3]), hash(&[1, 2, 4]));
        assert_ne!(hash(&[1, 2]), hash(&[1, 2, 2]));
    }
}
