//! Benchmark: cost of `queue.ahead` for a decision on 64 workers while 1,000 requests are held, by number of tenants.
//! The pool's queue is locked meanwhile. Run with `cargo bench -p routing`.

use std::sync::Arc;

use divan::{Bencher, black_box};
use routing::{FairQueue, Held, RequestRank, Waiting, WorkerId};

const HELD: u64 = 1_000;
const WORKERS: u32 = 64;
const TENANTS: [u64; 4] = [1, 10, 100, 1_000];

fn main() {
    divan::main();
}

/// Returns a number that looks random.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

fn tenant(number: u64) -> Arc<str> {
    format!("tenant-{number}").into()
}

/// Creates a queue whose tenants have had unlike service.
fn queue(tenants: u64) -> FairQueue<()> {
    let mut queue = FairQueue::default();
    for number in 0..tenants {
        queue.pass(&tenant(number), (mixed(number) % 20_000) as f64);
    }
    for number in 0..HELD {
        let work = (mixed(number) % 20_000) as u32;
        let held = Held {
            order: work.into(),
            evaluated_at: Some(0),
            waits_for: Some((WorkerId(mixed(number + HELD) as u32 % WORKERS), work)),
        };
        let waiting = Waiting {
            class: 0,
            tenant: tenant(mixed(number + 2 * HELD) % tenants),
            share: f64::from(work) + 512.0,
            tokens: work.into(),
            work: work.into(),
            runs_us: 0,
            start_by_us: 0,
            held: Some(held),
        };
        queue.insert(number, waiting, ());
    }
    queue
}

/// Measures requests of all tenants in turn.
#[divan::bench(args = TENANTS)]
fn ahead(bencher: Bencher<'_, '_>, tenants: u64) {
    let queue = queue(tenants);
    let names: Vec<_> = (0..tenants).map(tenant).collect();
    let workers: Vec<_> = (0..WORKERS).map(WorkerId).collect();
    let most = vec![10_000; workers.len()];
    let mut names = names.iter().cycle();
    bencher.bench_local(|| {
        let rank = RequestRank {
            class: 0,
            tenant: names.next().map_or("", |name| &**name),
            charged: None,
        };
        queue.ahead(&rank, black_box(&workers), &most)
    });
}
