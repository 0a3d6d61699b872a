//! Pools whose dialect nothing names: it is read off the engines, and what cannot be read off is loud.

use harness::{SplitFleet, TestRouter};
use http::StatusCode;
use mock_engine::PdDialect;
use serde_json::Value;

use super::{CHAT, chat_body, reference};
use crate::fast;

async fn router_of(fleet: &SplitFleet, pd: &str) -> TestRouter {
    let pool = fleet.detected_toml("chat", pd);
    let route = "[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\n";
    TestRouter::start(&format!("{pool}{route}")).await.unwrap()
}

#[tokio::test]
async fn the_dialect_that_engines_show_is_detected_and_spoken() {
    for (dialect, name) in [
        (PdDialect::Nixl, "nixl"),
        (PdDialect::Mooncake, "mooncake-connector"),
        (PdDialect::Sglang, "sglang"),
    ] {
        let fleet = SplitFleet::start(dialect, (1, 1), |config| fast(0, config))
            .await
            .unwrap();
        let (_engine, direct) = reference().await;
        let router = router_of(&fleet, "").await;
        let is_detected = |page: &Value| page["pools"][0]["dialect_detection"]["state"] == "detected";
        let status = router
            .admin_shows("/status", "the dialect is detected", is_detected)
            .await;
        let pool = &status["pools"][0];
        assert_eq!(pool["dialect"], name);
        let reason = pool["dialect_detection"]["reason"].as_str().unwrap();
        assert!(reason.contains("of chat-p0"), "{reason}");
        for number in 0..4 {
            let body = chat_body(number, false);
            let answer = router.client.post(CHAT, &body).await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{name}: {}", answer.text());
            assert_eq!(answer.header("x-conductor-prefill-worker"), "chat-p0", "{name}");
            let expected = direct.post(CHAT, &body).await.unwrap().json().unwrap();
            let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
            assert_eq!(text(&answer.json().unwrap()), text(&expected), "{name}");
        }
        let stats = fleet.prefill[0].stats();
        assert_eq!((stats.prefill_legs, stats.role_violations), (4, 0), "{name}");
    }
}

#[tokio::test]
async fn a_dialect_that_nothing_shows_is_loud_and_requests_are_served() {
    let fleet = SplitFleet::start(PdDialect::Store, (1, 1), |config| fast(0, config))
        .await
        .unwrap();
    let router = router_of(&fleet, "").await;
    for number in 0..3 {
        let answer = router.client.post(CHAT, &chat_body(number, false)).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.header("x-conductor-worker"), "chat-d0");
        assert_eq!(answer.header("x-conductor-prefill-worker"), "");
    }
    let status = router.admin("/status").await.unwrap();
    let pool = &status["pools"][0];
    assert!(pool["dialect"].is_null(), "{pool}");
    assert_eq!(pool["dialect_detection"]["state"], "unknown");
    let reason = pool["dialect_detection"]["reason"].as_str().unwrap();
    assert!(reason.contains("--dialect"), "{reason}");
    let known = router
        .metric("conductor_pd_dialect_known{pool=\"chat\"")
        .await
        .unwrap();
    assert_eq!(known, Some(0.0));
}

#[tokio::test]
async fn nothing_is_answered_alone_where_that_is_off_and_the_dialect_is_unknown() {
    let fleet = SplitFleet::start(PdDialect::Store, (1, 1), |config| fast(0, config))
        .await
        .unwrap();
    let router = router_of(&fleet, ", alone = false").await;
    // The first request is the trial, and is served.
    let first = router.client.post(CHAT, &chat_body(0, false)).await.unwrap();
    assert_eq!(first.status, StatusCode::OK);
    let answer = router.client.post(CHAT, &chat_body(1, false)).await.unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json().unwrap()["error"]["code"], "dialect_unknown");
}
