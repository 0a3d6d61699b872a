//! Fleet: all workers as one immutable value, and its change on a reload.

use std::collections::HashMap;
use std::sync::Arc;

use crate::id::{WorkerId, WorkerIds};
use crate::worker::{Worker, WorkerSpec};

/// Every worker of every pool. Made from the previous fleet, so that a worker which stays keeps its identity,
/// its load and (in the adapters, keyed by its id) its connections.
#[derive(Debug, Default)]
pub struct Fleet {
    workers: Vec<Arc<Worker>>,
    ids: WorkerIds,
}

/// Changes of a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FleetChange {
    /// Workers that were not there before.
    pub added: Vec<WorkerId>,
    /// Workers that are gone: their id will not come back.
    pub removed: Vec<WorkerId>,
    /// Workers that stay under the same id with a changed spec.
    pub changed: Vec<WorkerId>,
}

impl Fleet {
    /// Returns the fleet that follows this one. A worker stays itself when its name and URL are unchanged; under
    /// another URL it is another server with another cache, hence another worker.
    ///
    /// Names must be unique (the configuration sees to it).
    #[must_use]
    pub fn next(&self, specs: Vec<WorkerSpec>) -> (Self, FleetChange) {
        let mut change = FleetChange::default();
        let mut previous: HashMap<&str, &Arc<Worker>> = self
            .workers
            .iter()
            .map(|worker| (&*worker.spec().name, worker))
            .collect();
        let mut workers = Vec::with_capacity(specs.len());
        for spec in specs {
            let same_server = previous
                .get(&*spec.name)
                .copied()
                .filter(|worker| worker.spec().url == spec.url);
            let worker = match same_server {
                Some(same) => {
                    previous.remove(&*spec.name);
                    if *same.spec() == spec {
                        Arc::clone(same)
                    } else {
                        change.changed.push(same.id());
                        Arc::new(same.with_spec(spec))
                    }
                }
                None => {
                    let id = self.ids.next();
                    change.added.push(id);
                    Arc::new(Worker::new(id, spec))
                }
            };
            workers.push(worker);
        }
        change.removed = previous.into_values().map(|worker| worker.id()).collect();
        change.removed.sort_unstable();
        let ids = self.ids.clone();
        (Self { workers, ids }, change)
    }

    /// Returns the source of the workers' ids, for owners of caches that are no worker's of the fleet.
    #[must_use]
    pub fn ids(&self) -> &WorkerIds {
        &self.ids
    }

    /// Returns all workers, in the order of the configuration.
    #[must_use]
    pub fn workers(&self) -> &[Arc<Worker>] {
        &self.workers
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn spec(name: &str, url: &str, weight: f64) -> WorkerSpec {
        WorkerSpec {
            weight,
            ..WorkerSpec::mixed(name, url)
        }
    }

    #[test]
    fn an_unchanged_worker_is_the_very_same_value() {
        let (first, _) = Fleet::default().next(vec![spec("a", "http://a", 1.0)]);
        let (second, change) = first.next(vec![spec("a", "http://a", 1.0)]);
        assert!(Arc::ptr_eq(&first.workers()[0], &second.workers()[0]));
        assert_eq!(change, FleetChange::default());
    }

    #[test]
    fn a_changed_weight_keeps_the_identity_and_the_load() {
        let (first, _) = Fleet::default().next(vec![spec("a", "http://a", 1.0)]);
        let lease = first.workers()[0].load().book(1, 1);
        let (second, change) = first.next(vec![spec("a", "http://a", 2.0)]);
        assert_eq!(change.changed, [WorkerId(0)]);
        assert_eq!(second.workers()[0].load().read().requests, 1);
        drop(lease);
        assert_eq!(second.workers()[0].load().read().requests, 0);
    }

    #[test]
    fn a_changed_url_is_another_worker_and_ids_are_never_reused() {
        let (first, _) = Fleet::default().next(vec![spec("a", "http://a", 1.0), spec("b", "http://b", 1.0)]);
        let (second, change) = first.next(vec![spec("a", "http://c", 1.0)]);
        assert_eq!(change.added, [WorkerId(2)]);
        assert_eq!(change.removed, [WorkerId(0), WorkerId(1)]);
        let (_, change) = second.next(vec![spec("a", "http://a", 1.0)]);
        assert_eq!(change.added, [WorkerId(3)]);
    }
}
