//! Workers that are in two pools.

use std::sync::Arc;

use routing::{HeldSummary, WorkerId};

use crate::bus::Hub;
use crate::{Pool, Router, pass, worker};

/// Starts a router whose only worker is in two pools.
fn start(hub: &Hub, router: u64) -> (Router, Arc<Pool>) {
    let shared = worker(0);
    let [first, second] = ["main", "batch"].map(|name| Pool::new(name, vec![Arc::clone(&shared)]));
    let router = Router::start_with(hub, router, vec![first, Arc::clone(&second)]);
    (router, second)
}

fn hold(pool: &Pool, requests: &[(u32, f64)]) {
    let mut held = HeldSummary::default();
    for (work, order) in requests {
        held.add(*work, *order);
    }
    pool.held.lock().unwrap().insert(WorkerId(0), held);
}

#[tokio::test(start_paused = true)]
async fn capacity_freed_elsewhere_reaches_each_pool_of_a_worker() {
    let hub = Hub::default();
    let ((one, _), (two, second)) = (start(&hub, 1), start(&hub, 2));
    pass(300).await;
    let lease = one.worker(0).load().book(1_000, 600);
    pass(60).await;
    assert_eq!(two.requests(0), 1, "counted once");
    drop(lease);
    pass(60).await;
    for pool in [&two.pool, &second] {
        assert_eq!(*pool.freed.lock().unwrap(), [WorkerId(0)], "{}", pool.name);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_held_in_each_pool_of_a_worker_are_shared_as_their_sum() {
    let hub = Hub::default();
    let ((one, second), (two, _)) = (start(&hub, 1), start(&hub, 2));
    pass(300).await;
    hold(&one.pool, &[(100, 7.0), (700, 3.0)]);
    hold(&second, &[(200, 5.0)]);
    pass(60).await;
    let held = two.worker(0).load().others().held().unwrap();
    assert_eq!((held.requests(), held.first_order()), (3, 3.0));
    assert_eq!(held.work_up_to(u32::MAX), 1_000);
    one.pool.held.lock().unwrap().clear();
    pass(60).await;
    let held = two.worker(0).load().others().held().unwrap();
    assert_eq!((held.requests(), held.first_order()), (1, 5.0));
}
