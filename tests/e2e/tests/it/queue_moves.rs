//! Requests that wait while the workers of their pool change.

use harness::{Fleet, TestRouter, route_all, worker_toml};
use http::StatusCode;

use crate::admission::{hang, received, send};
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
        .admin_shows("/status", "the fleet is another one", |page| {
            let workers = page["pools"][0]["workers"].as_array().unwrap().iter();
            workers
                .map(|worker| worker["name"].as_str().unwrap().to_owned())
                .eq(numbers.iter().map(|number| format!("w{number}")))
        })
        .await;
}

#[tokio::test]
async fn requests_that_wait_go_to_a_worker_that_is_added() {
    let fleet = fast_fleet(2).await;
    let router = TestRouter::start(&one_each(&[0], &fleet)).await.unwrap();
    hang(&fleet);
    let mut sent = Vec::new();
    for text in ["a", "b", "c"] {
        sent.push(send(&router, text, &[]).await);
    }
    reload(&router, &[0, 1], &fleet).await;
    // The engine that hangs has no room for a second request, so the other one answers both.
    for waiting in sent.drain(1..) {
        let answer = waiting.answer().await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-conductor-worker"), "w1");
    }
    assert_eq!(received(&fleet), ["a"]);
    fleet.engines[0].faults().clear();
    assert_eq!(sent.remove(0).answer().await.status, StatusCode::OK);
}

#[tokio::test]
async fn requests_that_wait_are_not_sent_to_a_worker_that_was_removed() {
    let fleet = fast_fleet(2).await;
    let router = TestRouter::start(&one_each(&[0], &fleet)).await.unwrap();
    hang(&fleet);
    let mut sent = Vec::new();
    for text in ["a", "b", "c"] {
        sent.push(send(&router, text, &[]).await);
    }
    reload(&router, &[1], &fleet).await;
    fleet.engines[0].faults().clear();
    let first = sent.remove(0).answer().await;
    assert_eq!(first.header("x-conductor-worker"), "w0", "its request ends there");
    for waiting in sent {
        let answer = waiting.answer().await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-conductor-worker"), "w1");
    }
    assert_eq!(received(&fleet), ["a"]);
}
