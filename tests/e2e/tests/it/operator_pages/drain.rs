//! `POST /admin/workers/drain` and `/resume`.

use bytes::Bytes;
use harness::TestRouter;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{KEY, server_key};
use crate::{fast_fleet, router_with, worker_of};

async fn post(router: &TestRouter, action: &str, key: &str, body: &Value) -> (StatusCode, Value) {
    let path = format!("/admin/workers/{action}");
    let body = Bytes::from(body.to_string());
    let sent = router
        .admin
        .stream(Method::POST, &path, &[("x-api-key", key)], body)
        .await;
    let answer = sent.unwrap().whole().await.unwrap();
    (answer.status, answer.json().unwrap())
}

/// Returns the workers of a few requests, each once.
async fn serving(router: &TestRouter) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(worker_of(router).await);
    }
    seen.sort();
    seen.dedup();
    seen
}

#[tokio::test]
async fn a_drained_worker_is_visible_and_gets_no_requests_until_it_is_resumed() {
    let fleet = fast_fleet(2).await;
    let router = router_with(&server_key(), &fleet, "round-robin").await;
    let body = json!({ "pool": "chat", "worker": "w0", "reason": "a new driver" });
    let (status, answer) = post(&router, "drain", KEY, &body).await;
    assert_eq!(
        (status, &answer["change"]),
        (StatusCode::OK, &json!("drained")),
        "{answer}"
    );
    assert_eq!(serving(&router).await, ["w1"]);
    let page = router.admin("/status").await.unwrap();
    let worker = &page["pools"][0]["workers"][0];
    assert_eq!(
        (&worker["health"], &worker["source"]),
        (&json!("draining"), &json!("api-drain")),
        "{worker}"
    );
    let changes = router.admin("/admin/changes?limit=1").await.unwrap();
    let change = &changes["changes"][0];
    assert_eq!(
        (&change["kind"], &change["by"]),
        (&json!("worker-drained"), &json!("a new driver")),
        "{change}"
    );

    let (_, again) = post(&router, "drain", KEY, &body).await;
    assert_eq!(again["change"], "unchanged", "{again}");
    let (_, resumed) = post(&router, "resume", KEY, &json!({ "pool": "chat", "worker": "w0" })).await;
    assert_eq!(resumed["change"], "resumed", "{resumed}");
    assert_eq!(serving(&router).await, ["w0", "w1"]);
    assert_eq!(router.admin("/status").await.unwrap()["overlays"], json!([]));
}

#[tokio::test]
async fn a_drain_needs_the_key_and_a_worker_that_is_there() {
    let fleet = fast_fleet(1).await;
    let router = router_with(&server_key(), &fleet, "round-robin").await;
    for (key, pool, worker, status, code) in [
        ("wrong", "chat", "w0", 401, "invalid_api_key"),
        (KEY, "x", "w0", 404, "pool_not_found"),
        (KEY, "chat", "w7", 404, "worker_not_found"),
    ] {
        let body = json!({ "pool": pool, "worker": worker });
        let (found, answer) = post(&router, "drain", key, &body).await;
        assert_eq!(
            (found.as_u16(), &answer["error"]["code"]),
            (status, &json!(code)),
            "{answer}"
        );
    }
    let (status, _) = post(&router, "drain", KEY, &json!(["chat", "w0"])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}
