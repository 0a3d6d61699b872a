//! Samples of fleets, for tests.

use std::sync::Arc;

use proxy::{Health, PoolSample, PoolTotals, WorkerSample};
use routing::{Worker, WorkerId, WorkerSpec};

/// Returns an idle worker.
pub(crate) fn worker(name: &str) -> WorkerSample {
    let spec = WorkerSpec::mixed(name, format!("http://{name}:1"));
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
        decodes_alone: true,
        workers,
    }
}
