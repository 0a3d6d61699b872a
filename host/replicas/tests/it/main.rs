//! Routers that exchange their loads over a bus that loses, delays, repeats and reorders messages.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test's own functions fail by panicking too"
)]

mod codec;
mod convergence;
mod costs;
mod silence;
mod transfer;
mod usage;

use std::sync::Arc;

use replicas::{LoadPublisher, Peers, PeersSpec, RouterId, SharedWorker, WorkerGauges, WorkerKey};
use routing::{LoadTotals, WorkerId, WorkerLoad};

/// Silence after which a router's gauges fade, and after which it is removed.
const SPEC: PeersSpec = PeersSpec {
    dead_after_ms: 1_000,
    forget_after_ms: 10_000,
};

/// Returns gauges with that many requests in flight, of 100 uncached tokens each.
fn gauges(requests: u32) -> WorkerGauges {
    let load = LoadTotals {
        requests,
        decoding: requests / 2,
        prefill_tokens: 100 * u64::from(requests),
        prompt_tokens: 200 * u64::from(requests),
        decoding_tokens: 50 * u64::from(requests),
    };
    WorkerGauges::new(load, None)
}

/// Returns workers with the keys 0, 1, ...
fn workers(count: u32) -> Vec<SharedWorker> {
    (0..count)
        .map(|at| SharedWorker {
            key: WorkerKey(at.into()),
            id: WorkerId(at),
            load: Arc::<WorkerLoad>::default(),
        })
        .collect()
}

/// Returns the receiving side of a router with workers.
fn receiver(own: u64, count: u32) -> Peers {
    let mut peers = Peers::new(RouterId(own), SPEC);
    peers.set_workers(workers(count));
    peers
}

/// Returns the sending side of a router with workers.
fn publisher(own: u64, count: u32) -> LoadPublisher {
    let mut publisher = LoadPublisher::new(RouterId(own));
    publisher.set_workers((0..count).map(|at| WorkerKey(at.into())));
    publisher
}

/// Returns the bytes of a router's next message.
fn message(publisher: &mut LoadPublisher, now_ms: u64, requests: &[u32]) -> Option<Vec<u8>> {
    let gauges = requests.iter().map(|requests| gauges(*requests));
    let message = publisher.message(now_ms, gauges, std::iter::empty())?;
    Some(message.encode())
}

/// Returns the requests in flight elsewhere at each worker.
fn requests(peers: &Peers, count: u32) -> Vec<u64> {
    let sum = |at: u32| peers.sum(WorkerKey(at.into())).unwrap().requests();
    (0..count).map(sum).collect()
}
