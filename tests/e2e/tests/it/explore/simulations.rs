//! Simulations, where there can be none. `host/conductor/tests/record` runs some.

use bytes::Bytes;
use harness::{TestRouter, route_all};
use http::{Method, StatusCode};
use serde_json::json;

use crate::fast_fleet;

const PAGE: &str = "/admin/simulations";

#[tokio::test]
async fn a_simulation_needs_the_key_the_program_and_recorded_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("admin.key");
    std::fs::write(&key, "secret").unwrap();
    let fleet = fast_fleet(1).await;
    let toml = format!(
        "admin-api-key = {{ file = {key:?} }}\n{}{}",
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let body = Bytes::from(json!({ "policies": ["round-robin"] }).to_string());
    for (key, status, code) in [
        (None, StatusCode::UNAUTHORIZED, "invalid_api_key"),
        (Some("wrong"), StatusCode::UNAUTHORIZED, "invalid_api_key"),
        (Some("secret"), StatusCode::CONFLICT, "simulation_unavailable"),
    ] {
        let headers: Vec<_> = key.map(|key| ("x-api-key", key)).into_iter().collect();
        let sent = router
            .admin
            .stream(Method::POST, PAGE, &headers, body.clone())
            .await;
        let answer = sent.unwrap().whole().await.unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.json().unwrap()["error"]["code"], code);
    }
    let list = router.admin(PAGE).await.unwrap();
    assert_eq!(list["simulations"], json!([]));
    let unknown = router.admin.get("/admin/simulations/7").await.unwrap();
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}
