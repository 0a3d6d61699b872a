//! `GET /admin/changes`: changes with their kind and cause.

use bytes::Bytes;
use harness::{TestRouter, route_all};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::get;
use crate::{fast_fleet, router_with};

/// Waits until a change of that kind is listed, and returns the newest one.
async fn change(router: &TestRouter, kind: &str) -> Value {
    change_that(router, kind, |_| true).await
}

/// Waits until a change of that kind that satisfies `look` is listed, and returns the newest one.
async fn change_that(router: &TestRouter, kind: &str, look: impl Fn(&Value) -> bool) -> Value {
    let newest = |page: &Value| {
        let mut changes = page["changes"].as_array().unwrap().iter();
        changes
            .find(|change| change["kind"] == kind && look(change))
            .cloned()
    };
    let has_one = |page: &Value| newest(page).is_some();
    newest(&router.admin_shows("/admin/changes", kind, has_one).await).unwrap()
}

async fn post(router: &TestRouter, path: &str, body: Value) {
    let body = Bytes::from(body.to_string());
    let sent = router.admin.stream(Method::POST, path, &[], body).await.unwrap();
    let answer = sent.whole().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

#[tokio::test]
async fn edits_are_listed_with_their_cause_and_generation() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let started = change(&router, "config-applied").await;
    assert_eq!(
        (&started["cause"], &started["generation"]),
        (&json!("start"), &json!(1))
    );

    router
        .save_config(&format!("{}{}", fleet.workers_toml(), route_all("least-request")))
        .unwrap();
    let applied = change_that(&router, "config-applied", |change| change["id"] != started["id"]).await;
    assert_eq!(
        (&applied["cause"], &applied["generation"]),
        (&json!("file"), &json!(2)),
        "{applied}"
    );
    assert!(applied["id"].as_u64() > started["id"].as_u64());

    let text = format!("{}{}", fleet.workers_toml(), route_all("nothing"));
    router.save_config(&text).unwrap();
    let refused = change(&router, "config-refused").await;
    assert_eq!(
        (&refused["result"], &refused["generation"]),
        (&json!("refused"), &json!(2)),
        "{refused}"
    );
    assert!(
        refused["summary"].as_str().unwrap().contains("nothing"),
        "{refused}"
    );
    let counted = router
        .metric("conductor_changes_total{kind=\"config-refused\"}")
        .await;
    assert_eq!(counted.unwrap(), Some(1.0));
    let never = router
        .metric("conductor_changes_total{kind=\"canary-stopped\"}")
        .await;
    assert_eq!(never.unwrap(), Some(0.0));
}

#[tokio::test]
async fn changes_over_http_are_listed() {
    let fleet = fast_fleet(2).await;
    let router = router_with("", &fleet, "round-robin").await;
    let gone = fleet.engines[1].url();
    post(&router, "/instances/remove", json!({ "instance": gone })).await;
    let removed = change(&router, "instance-removed").await;
    assert_eq!(
        (&removed["cause"], &removed["generation"]),
        (&json!("api"), &json!(2)),
        "{removed}"
    );
    post(&router, "/admin/policies/least-request/shadow", json!({})).await;
    let route = change(&router, "route-changed").await;
    assert!(
        route["summary"].as_str().unwrap().contains("least-request"),
        "{route}"
    );
}

#[tokio::test]
async fn a_worker_that_leaves_service_is_listed_with_the_reason() {
    let fleet = fast_fleet(2).await;
    let router = router_with("", &fleet, "round-robin").await;
    let gone = fleet.engines[1].faults();
    gone.refuse_connections().await.unwrap();
    for _ in 0..8 {
        let body = crate::chat("hi", false);
        router.client.post("/v1/chat/completions", &body).await.unwrap();
    }
    let ejected = change(&router, "worker-ejected").await;
    assert_eq!(ejected["cause"], "health", "{ejected}");
    assert!(
        ejected["summary"].as_str().unwrap().contains("chat/w1"),
        "{ejected}"
    );
}

#[tokio::test]
async fn a_new_version_of_a_policy_is_a_change_of_the_folder() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let bytes = conductor::builtin::find("load-weighted").unwrap().bytes;
    router.save_policy("mine", bytes).unwrap();
    let swapped = change(&router, "policy-swapped").await;
    assert_eq!(
        (&swapped["cause"], &swapped["result"]),
        (&json!("folder"), &json!("applied")),
        "{swapped}"
    );
    assert!(
        swapped["summary"].as_str().unwrap().contains("`mine`"),
        "{swapped}"
    );
    router.save_policy("mine", b"no component at all").unwrap();
    let refused = change(&router, "policy-refused").await;
    assert_eq!(
        (&refused["cause"], &refused["problems"]),
        (&json!("folder"), &json!(1)),
        "{refused}"
    );
}

#[tokio::test]
async fn an_invalid_limit_is_refused() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let refused = get(&router.admin, "/admin/changes?limit=257", &[]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json().unwrap()["error"]["code"], "query_invalid");
}
