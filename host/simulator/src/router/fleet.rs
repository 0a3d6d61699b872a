//! Fleet of a router: the server's own workers with their loads, and their presence and health.

use std::collections::BTreeMap;
use std::sync::Arc;

use routing::{EngineReport, Fleet, Role, Worker, WorkerId, WorkerSpec};

use crate::engine::EngineLoad;
use crate::spec::{ClusterSpec, WorkerIdentity};

/// Longest that a worker is kept away from, however often it failed, in microseconds.
const LONGEST_REST_US: u64 = 60_000_000;

/// The workers of a cluster, by their place in it: a worker's id is that place.
#[derive(Debug)]
pub(super) struct SimFleet {
    /// Shared with the queries of policies.
    workers: Arc<[Arc<Worker>]>,
    states: Vec<State>,
    /// Capacities of the workers' caches, in tokens.
    capacities: Vec<u64>,
    rest_us: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_gone: bool,
    joined_us: u64,
    /// Tries in a row that failed.
    failures: u32,
    rests_until_us: u64,
}

impl SimFleet {
    /// Returns a fleet with all workers present. Without a decode stage a prefill worker does the whole of a request,
    /// hence is a mixed worker.
    pub(super) fn new(cluster: &ClusterSpec, rest_us: u64) -> Self {
        let specs = cluster.workers.iter().enumerate().map(|(at, worker)| {
            let role = match worker.role {
                Role::Prefill if !cluster.decode => Role::Mixed,
                role => role,
            };
            let WorkerIdentity { name, weight, labels } =
                worker.identity.clone().unwrap_or_else(|| WorkerIdentity {
                    name: format!("{}-{at}", worker.role.as_str()),
                    weight: worker.speed,
                    labels: BTreeMap::new(),
                });
            let url = format!("http://{name}");
            let labels = labels.into_iter();
            WorkerSpec {
                role,
                weight,
                labels: labels.map(|(key, value)| (key.into(), value.into())).collect(),
                ..WorkerSpec::mixed(name, url)
            }
        });
        let (fleet, _) = Fleet::default().next(specs.collect());
        Self {
            states: vec![State::default(); fleet.workers().len()],
            capacities: cluster.workers.iter().map(|worker| worker.kv_tokens).collect(),
            workers: fleet.workers().into(),
            rest_us,
        }
    }

    pub(super) fn workers(&self) -> &[Arc<Worker>] {
        &self.workers
    }

    pub(super) fn shared_workers(&self) -> Arc<[Arc<Worker>]> {
        Arc::clone(&self.workers)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = WorkerId> {
        self.workers().iter().map(|worker| worker.id())
    }

    /// Returns whether it is there, resting or not.
    pub(super) fn is_there(&self, worker: usize) -> bool {
        !self.states[worker].is_gone
    }

    /// Returns whether it is there and does not rest.
    pub(super) fn is_awake(&self, worker: usize, now_us: u64) -> bool {
        self.is_there(worker) && self.states[worker].rests_until_us <= now_us
    }

    /// Returns the microseconds since it joined.
    pub(super) fn age_us(&self, worker: usize, now_us: u64) -> u64 {
        now_us.saturating_sub(self.states[worker].joined_us)
    }

    /// Tries in a row that it failed at.
    pub(super) fn failures(&self, worker: usize) -> u32 {
        self.states[worker].failures
    }

    /// Returns its engine's load as a scrape reports it.
    pub(super) fn report(&self, worker: usize, load: &EngineLoad) -> EngineReport {
        let capacity = self.capacities[worker] as f64;
        EngineReport {
            running: (load.computing + load.decoding) as f64,
            waiting: load.waiting as f64,
            kv_usage: load.kv_tokens as f64 / capacity,
            kv_tokens: capacity,
        }
    }

    /// Ejects a worker that failed at a request.
    pub(super) fn failed(&mut self, worker: usize, now_us: u64) {
        let state = &mut self.states[worker];
        let doublings = state.failures.min(16);
        state.failures = state.failures.saturating_add(1);
        let rest = self.rest_us.saturating_mul(1 << doublings).min(LONGEST_REST_US);
        state.rests_until_us = now_us.saturating_add(rest);
    }

    /// Records that it answered a request.
    pub(super) fn answered(&mut self, worker: usize) {
        let state = &mut self.states[worker];
        state.failures = 0;
        state.rests_until_us = 0;
    }

    /// Removes it.
    pub(super) fn gone(&mut self, worker: usize) {
        self.states[worker].is_gone = true;
    }

    /// Adds it again, as one that has just joined.
    pub(super) fn back(&mut self, worker: usize, now_us: u64) {
        self.states[worker] = State {
            joined_us: now_us,
            ..State::default()
        };
    }
}
