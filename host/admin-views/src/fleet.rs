//! Fleet as the live page shows it: a full view at first, then the workers that changed.

use std::collections::BTreeMap;

use proxy::{Health, PoolSample, WorkerSample};
use routing::WorkerId;
use serde::Serialize;

use crate::rates::{FleetRates, PoolRates, WorkerRates, rounded, worker_key};

/// State of a worker's cache, by the router.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CacheState {
    /// Its event feed.
    pub feed: Option<FeedView>,
    /// Blocks of it in the index.
    pub indexed_blocks: Option<u64>,
}

/// Event feed of a worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeedView {
    /// State, as on `/admin/feeds`.
    pub state: &'static str,
    /// Delay of the last message, to the tenth of a second.
    pub lag_s: Option<f64>,
    /// Time since the last message, in steps of 5 s.
    pub silent_for_s: Option<f64>,
}

/// Worker of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerView {
    #[serde(flatten)]
    identity: WorkerIdentity,
    #[serde(flatten)]
    state: WorkerState,
    #[serde(flatten)]
    level: WorkerLevel,
    #[serde(flatten)]
    rates: WorkerRates,
    ttft_s: Option<f64>,
    tpot_s: Option<f64>,
    #[serde(flatten)]
    cache: CacheState,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct WorkerIdentity {
    pool: String,
    name: String,
    url: String,
    role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct WorkerState {
    state: &'static str,
    reason: Option<String>,
    draining: bool,
}

/// Load of a worker, by the router's bookings and by the engine's own report.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct WorkerLevel {
    in_flight: u32,
    running: Option<f64>,
    waiting: Option<f64>,
    kv_usage: Option<f64>,
}

/// Pool with its rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolView {
    name: String,
    rates: PoolRates,
}

/// Event of the live page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetEvent {
    /// Seconds since 1970.
    pub at: f64,
    /// Generation of the configuration.
    pub generation: u64,
    /// Set if the workers in service of some pool can answer a request, or there are no pools.
    pub ready: bool,
    /// Set if it has every worker.
    pub full: bool,
    /// Every pool.
    pub pools: Vec<PoolView>,
    /// Every worker, or those that changed.
    pub workers: Vec<WorkerView>,
    /// Keys of workers that are gone since the last event.
    pub gone: Vec<String>,
}

/// State of the fleet at the last event.
#[derive(Debug, Default)]
pub struct FleetView {
    pools: Vec<PoolView>,
    workers: BTreeMap<String, WorkerView>,
    ready: bool,
}

impl FleetView {
    /// Builds the view of a sample. `knowledge` finds what is known of a worker's cache.
    pub fn of(pools: &[PoolSample], rates: &FleetRates, knowledge: impl Fn(WorkerId) -> CacheState) -> Self {
        let members = pools
            .iter()
            .flat_map(|pool| pool.workers.iter().map(move |worker| (pool, worker)));
        let view = |(pool, worker)| {
            let key = worker_key(pool, worker);
            let cache = knowledge(worker.worker.id());
            let view = WorkerView::of(pool, worker, rates.worker(&key), cache);
            (key, view)
        };
        Self {
            pools: pools
                .iter()
                .map(|pool| PoolView {
                    name: pool.name.to_string(),
                    rates: rates.pool(&pool.name),
                })
                .collect(),
            workers: members.map(view).collect(),
            ready: pools.is_empty() || pools.iter().any(PoolSample::is_served),
        }
    }

    /// Returns the event with every worker.
    #[must_use]
    pub fn full(&self, at: f64, generation: u64) -> FleetEvent {
        FleetEvent {
            full: true,
            workers: self.workers.values().cloned().collect(),
            ..self.event(at, generation)
        }
    }

    /// Returns the event with the workers that differ from `before`.
    #[must_use]
    pub fn since(&self, before: &Self, at: f64, generation: u64) -> FleetEvent {
        let changed = self
            .workers
            .iter()
            .filter(|(key, view)| before.workers.get(*key) != Some(*view));
        let gone = before.workers.keys();
        FleetEvent {
            workers: changed.map(|(_, view)| view.clone()).collect(),
            gone: gone
                .filter(|key| !self.workers.contains_key(*key))
                .cloned()
                .collect(),
            ..self.event(at, generation)
        }
    }

    fn event(&self, at: f64, generation: u64) -> FleetEvent {
        FleetEvent {
            at,
            generation,
            ready: self.ready,
            full: false,
            pools: self.pools.clone(),
            workers: Vec::new(),
            gone: Vec::new(),
        }
    }
}

impl WorkerView {
    fn of(pool: &PoolSample, sample: &WorkerSample, rates: WorkerRates, cache: CacheState) -> Self {
        let spec = sample.worker.spec();
        let known = |number: f64| number.is_finite().then(|| rounded(number));
        let engine = sample.engine.as_ref();
        Self {
            identity: WorkerIdentity {
                pool: pool.name.to_string(),
                name: spec.name.to_string(),
                url: spec.url.to_string(),
                role: spec.role.as_str(),
            },
            state: WorkerState {
                state: sample.health.as_str(),
                reason: sample.reason.clone(),
                draining: sample.health == Health::Draining,
            },
            level: WorkerLevel {
                in_flight: sample.in_flight,
                running: engine.and_then(|load| known(load.running)),
                waiting: engine.and_then(|load| known(load.waiting)),
                kv_usage: engine.and_then(|load| known(load.kv_usage)),
            },
            rates,
            ttft_s: sample.ttft_s.map(rounded),
            tpot_s: sample.tpot_s.map(rounded),
            cache,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use routing::{Role, Worker};

    use super::*;
    use crate::fixtures::{pool, worker};

    fn view(pools: &[PoolSample]) -> FleetView {
        FleetView::of(pools, &FleetRates::default(), |_| CacheState::default())
    }

    fn names(event: &FleetEvent) -> Vec<&str> {
        event
            .workers
            .iter()
            .map(|worker| worker.identity.name.as_str())
            .collect()
    }

    #[test]
    fn an_event_has_the_workers_that_changed_and_those_that_are_gone() {
        let first = view(&[pool("a", vec![worker("w0"), worker("w1"), worker("w2")])]);
        let full = first.full(1.0, 7);
        assert!(full.full && full.ready);
        assert_eq!(names(&full), ["w0", "w1", "w2"]);

        let mut busy = worker("w1");
        busy.in_flight = 1;
        let next = view(&[pool("a", vec![worker("w0"), busy, worker("w3")])]);
        let event = next.since(&first, 2.0, 8);
        assert_eq!(names(&event), ["w1", "w3"]);
        assert_eq!(event.gone, ["a/w2"]);
        assert_eq!((event.generation, event.full), (8, false));
        assert_eq!(names(&next.since(&next, 3.0, 8)), Vec::<&str>::new());
    }

    #[test]
    fn a_fleet_without_a_worker_in_service_is_not_ready() {
        let mut out = worker("w0");
        out.health = Health::Draining;
        let event = view(&[pool("a", vec![out])]).full(1.0, 1);
        assert!(!event.ready);
        assert!(event.workers[0].state.draining);
        assert!(view(&[]).full(1.0, 1).ready);
    }

    #[test]
    fn a_fleet_whose_prefill_workers_alone_are_in_service_is_not_ready() {
        let with_role = |role| {
            let mut sample = worker("w0");
            let mut spec = sample.worker.spec().clone();
            spec.role = role;
            sample.worker = Arc::new(Worker::new(WorkerId(0), spec));
            sample
        };
        let ready = |pool: PoolSample| view(&[pool]).full(1.0, 1).ready;
        assert!(!ready(pool("a", vec![with_role(Role::Prefill)])));
        assert!(ready(pool("a", vec![with_role(Role::Decode)])));
        let mut paired = pool("a", vec![with_role(Role::Decode)]);
        paired.decodes_alone = false;
        assert!(!ready(paired), "its decode workers need a prefill worker");
    }

    #[test]
    fn a_worker_is_one_flat_object() {
        let event = view(&[pool("a", vec![worker("w0")])]).full(1.0, 1);
        let row = serde_json::to_value(&event.workers[0]).unwrap();
        assert_eq!(row["state"], "ok");
        assert_eq!(row["feed"], serde_json::Value::Null);
        assert_eq!(row.as_object().unwrap().len(), 17);
    }
}
