//! Samples of fleets, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxy::{Health, PoolSample, PoolTotals, WorkerSample};
use routing::{Role, Worker, WorkerId, WorkerSpec};

/// Returns an idle worker.
pub(crate) fn worker(name: &str) -> WorkerSample {
    let spec = WorkerSpec {
        name: name.into(),
        url: format!("http://{name}:1").into(),
        role: Role::Mixed,
        models: Vec::new(),
        weight: 1.0,
        labels: BTreeMap::new(),
        rank: None,
        bootstrap: None,
    };
    WorkerSample {
        worker: Arc::new(Worker::new(WorkerId(0), spec)),
        health: Health::Ok,
        reason: None,
        attempts: 0,
        output_tokens: 0,
        in_flight: 0,
        decoding: 0,
        engine: None,
        ttft_s: None,
        tpot_s: None,
    }
}

/// Returns a pool without requests.
pub(crate) fn pool(name: &str, workers: Vec<WorkerSample>) -> PoolSample {
    PoolSample {
        name: name.into(),
        totals: PoolTotals::default(),
        waiting: 0,
        workers,
    }
}
