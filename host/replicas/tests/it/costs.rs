//! Samples of costs that routers exchange.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use replicas::{
    CostMessage, CostPublisher, MOST_COST_SAMPLES, Peers, RouterId, SharedWorker, WireError, WorkerKey,
    WorkerSamples,
};
use routing::{CostLine, CostSample, WorkerId, WorkerLoad};

use crate::{SPEC, message, publisher};

fn sample() -> impl Strategy<Value = CostSample> {
    let line = prop::sample::select(CostLine::ALL.to_vec());
    (line, prop::array::uniform3(0.0..1e9_f32)).prop_map(|(line, numbers)| CostSample { line, numbers })
}

fn cost_message() -> impl Strategy<Value = CostMessage> {
    let samples = (any::<u64>(), prop::collection::vec(sample(), 0..9));
    let worker = samples.prop_map(|(worker, samples)| WorkerSamples {
        worker: WorkerKey(worker),
        samples,
    });
    (any::<u64>(), any::<u64>(), prop::collection::vec(worker, 0..5)).prop_map(
        |(router, sequence, workers)| CostMessage {
            router: RouterId(router),
            sequence,
            workers,
        },
    )
}

proptest! {
    #[test]
    fn samples_are_read_back(message in cost_message()) {
        prop_assert_eq!(CostMessage::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn any_bytes_are_samples_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = CostMessage::decode(&bytes);
    }
}

#[test]
fn numbers_that_no_worker_measures_are_refused() {
    for number in [f32::NAN, f32::INFINITY, -1.0] {
        let message = CostMessage {
            router: RouterId(1),
            sequence: 1,
            workers: vec![WorkerSamples {
                worker: WorkerKey(0),
                samples: vec![CostSample {
                    line: CostLine::Prefill,
                    numbers: [1.0, number, 1.0],
                }],
            }],
        };
        assert_eq!(CostMessage::decode(&message.encode()), Err(WireError::Number));
    }
}

/// Makes a worker's cost model know that a thousand tokens take 100 ms.
fn teach(load: &Arc<WorkerLoad>, samples: u32) {
    for at in 0..samples {
        let tokens = 100 + 97 * (at % 40);
        let took = Duration::from_micros(u64::from(100 * tokens));
        load.book(tokens, tokens).first_token(took);
    }
}

#[test]
fn a_router_that_was_heard_teaches_the_workers_that_both_have_once() {
    let load = Arc::<WorkerLoad>::default();
    let mut peers = Peers::new(RouterId(9), SPEC);
    peers.set_workers(vec![SharedWorker {
        key: WorkerKey(1),
        id: WorkerId(0),
        load: Arc::clone(&load),
    }]);
    let (loads, mut costs) = (
        [Arc::<WorkerLoad>::default(), Arc::default()],
        CostPublisher::new(RouterId(1)),
    );
    let keyed = || {
        let models = loads.iter().map(|load| load.cost());
        (0..).map(WorkerKey).zip(models).collect::<Vec<_>>().into_iter()
    };
    assert_eq!(costs.message(keyed()), None, "nothing was measured");
    teach(&loads[1], 8);
    let first = costs.message(keyed()).unwrap().encode();
    assert_eq!(costs.message(keyed()), None, "they were sent");
    peers.receive_costs(&first).unwrap();
    assert_eq!(peers.counts().applied, 0, "that router is not known");
    let hello = message(&mut publisher(1, 2), 0, &[0, 0]).unwrap();
    peers.receive(0, &hello).unwrap();
    for _ in 0..3 {
        peers.receive_costs(&first).unwrap();
    }
    assert!(
        load.cost().read().prefill_ms(1_000, 0).is_nan(),
        "eight samples, not 24"
    );
    teach(&loads[1], 8);
    peers
        .receive_costs(&costs.message(keyed()).unwrap().encode())
        .unwrap();
    assert!((load.cost().read().prefill_ms(1_000, 0) - 100.0).abs() < 0.1);
}

#[test]
fn workers_without_room_in_a_message_are_first_in_the_next() {
    let loads: Vec<Arc<WorkerLoad>> = (0..2 * MOST_COST_SAMPLES / 8).map(|_| Arc::default()).collect();
    loads.iter().for_each(|load| teach(load, 8));
    let keyed = || {
        let models = loads.iter().map(|load| load.cost());
        (0..).map(WorkerKey).zip(models).collect::<Vec<_>>().into_iter()
    };
    let mut costs = CostPublisher::new(RouterId(1));
    let mut seen = Vec::new();
    while let Some(message) = costs.message(keyed()) {
        let samples: usize = message.workers.iter().map(|worker| worker.samples.len()).sum();
        assert!(samples <= MOST_COST_SAMPLES);
        seen.extend(message.workers.iter().map(|worker| worker.worker.0));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..loads.len() as u64).collect::<Vec<_>>());
}
