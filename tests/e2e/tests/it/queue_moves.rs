//! Requests that wait while the workers of their pool change.

use harness::{Fleet, TestRouter, route_all, worker_toml};
use http::StatusCode;

use crate::admission::{Sent, hang, received, send};
use crate::fast_fleet;

/// Returns the configuration of a router over these engines, each with room for one request.
fn one_each(numbers: &[usize], fleet: &Fleet) -> String {
    let workers = numbers
        .iter()
        .map(|number| worker_toml(*number, &fleet.engines[*number]));
    format!(
        "[pools.chat.admission]\nrequests = \"auto\"\nrequests-per-worker = 1\n{}{}",
        workers.collect::<String>(),
        route_all("least-request"),
    )
}

/// Saves a configuration, and waits until it is active.
async fn reload(router: &TestRouter, numbers: &[usize], fleet: &Fleet) {
    router.save_config(&one_each(numbers, fleet)).unwrap();
    router
        .admin_shows("/status", "the pool has these workers", |page| {
            let workers = page["pools"][0]["workers"].as_array().unwrap().iter();
            workers
                .map(|worker| worker["name"].as_str().unwrap().to_owned())
                .eq(numbers.iter().map(|number| format!("w{number}")))
        })
        .await;
}

/// Starts a router over the first engine, which hangs, and sends three requests: one is there, two wait.
async fn waiting(fleet: &Fleet) -> (TestRouter, Sent, [Sent; 2]) {
    let router = TestRouter::start(&one_each(&[0], fleet)).await.unwrap();
    hang(fleet);
    let first = send(&router, "a", &[]).await;
    let waiting = [send(&router, "b", &[]).await, send(&router, "c", &[]).await];
    (router, first, waiting)
}

/// Checks that the second engine answers requests that waited, and that the first one got none of them.
async fn check_moved(waiting: [Sent; 2], fleet: &Fleet) {
    for waiting in waiting {
        let answer = waiting.answer().await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-conductor-worker"), "w1");
    }
    assert_eq!(received(fleet), ["a"]);
}

#[tokio::test]
async fn requests_that_wait_go_to_a_worker_that_is_added() {
    let fleet = fast_fleet(2).await;
    let (router, first, waiting) = waiting(&fleet).await;
    reload(&router, &[0, 1], &fleet).await;
    // The engine that hangs has no room for a second request, so the other one answers both.
    check_moved(waiting, &fleet).await;
    fleet.engines[0].faults().clear();
    assert_eq!(first.answer().await.status, StatusCode::OK);
}

#[tokio::test]
async fn requests_that_wait_are_not_sent_to_a_worker_that_was_removed() {
    let fleet = fast_fleet(2).await;
    let (router, first, waiting) = waiting(&fleet).await;
    reload(&router, &[1], &fleet).await;
    fleet.engines[0].faults().clear();
    let first = first.answer().await;
    assert_eq!(first.header("x-conductor-worker"), "w0", "its request ends there");
    check_moved(waiting, &fleet).await;
}
