//! `GET /admin/requests`, and the stages of `GET /admin/explain/ID`.

use harness::{Fleet, TestRouter};
use http::StatusCode;
use serde_json::{Value, json};

use super::get;
use crate::{chat, fast_fleet, router_with};

const RECORD: &str = "[record]\nexplain = 10\nexplain-sample = 1.0\n";

async fn recording(fleet: &Fleet) -> TestRouter {
    router_with(RECORD, fleet, "round-robin").await
}

/// Sends a request that streams, and returns its id.
async fn send(router: &TestRouter, model: &str) -> String {
    let mut body = chat("hi", true);
    body["model"] = json!(model);
    let stream = router.client.open("/v1/chat/completions", &body).await.unwrap();
    let answer = stream.whole().await.unwrap();
    answer.header("x-request-id").to_owned()
}

async fn list(router: &TestRouter, query: &str) -> Vec<Value> {
    let page = router.admin(&format!("/admin/requests?{query}")).await.unwrap();
    page["requests"].as_array().unwrap().clone()
}

/// Waits until no request is open.
async fn all_ended(router: &TestRouter) {
    let is_over = |page: &Value| page["requests"] == json!([]);
    router
        .admin_shows("/admin/requests?outcome=open", "all requests ended", is_over)
        .await;
}

#[tokio::test]
async fn recorded_requests_are_listed_from_new_to_old_with_their_outcome() {
    let fleet = fast_fleet(2).await;
    let router = recording(&fleet).await;
    let (first, second) = (send(&router, "mock").await, send(&router, "mock").await);
    all_ended(&router).await;
    let rows = list(&router, "").await;
    let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&second, &first]);
    for row in &rows {
        assert_eq!(row["outcome"], "complete", "{row}");
        assert_eq!(
            (&row["status"], &row["pool"]),
            (&json!(200), &json!("chat")),
            "{row}"
        );
        assert_eq!(
            (&row["policy"], &row["route"]),
            (&json!("round-robin"), &json!(1)),
            "{row}"
        );
        assert!(row["duration_s"].as_f64() >= row["ttft_s"].as_f64(), "{row}");
        assert!(row["at"].as_f64() > Some(1.7e9), "{row}");
        assert_eq!(
            (&row["calls"], &row["fallback"]),
            (&json!(1), &json!(false)),
            "{row}"
        );
    }
    assert_ne!(rows[0]["worker"], rows[1]["worker"]);
}

#[tokio::test]
async fn a_query_selects_requests_and_continues_before_a_sequence_number() {
    let fleet = fast_fleet(1).await;
    let router = recording(&fleet).await;
    for _ in 0..3 {
        send(&router, "mock").await;
    }
    all_ended(&router).await;
    let newest = list(&router, "limit=1").await;
    assert_eq!(newest.len(), 1);
    let older = list(
        &router,
        &format!("before={}&worker=w0&outcome=complete", newest[0]["seq"]),
    )
    .await;
    assert_eq!(older.len(), 2);
    let id = older[0]["id"].as_str().unwrap();
    assert_eq!(list(&router, &format!("q={}", &id[4..])).await, older[..1]);
    for none in ["pool=x", "slower_s=1000", "outcome=shed", "model=x", "policy=x"] {
        assert_eq!(list(&router, none).await, Vec::<Value>::new(), "{none}");
    }
    let page = router.admin("/admin/requests?limit=2").await.unwrap();
    assert_eq!((&page["kept"], &page["limit"]), (&json!(3), &json!(2)), "{page}");
}

#[tokio::test]
async fn an_invalid_query_is_refused_with_the_key_at_fault() {
    let fleet = fast_fleet(1).await;
    let router = recording(&fleet).await;
    for query in ["limit=0", "limit=201", "slower_s=x", "unknown=1"] {
        let answer = get(&router.admin, &format!("/admin/requests?{query}"), &[]).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        let error = &answer.json().unwrap()["error"];
        assert_eq!(error["code"], "query_invalid", "{error}");
        let key = query.split('=').next().unwrap();
        assert!(error["message"].as_str().unwrap().contains(key), "{error}");
    }
}

#[tokio::test]
async fn the_stages_of_a_request_follow_each_other_to_its_end() {
    let fleet = fast_fleet(1).await;
    let router = recording(&fleet).await;
    let id = send(&router, "mock").await;
    all_ended(&router).await;
    let page = router.admin(&format!("/admin/explain/{id}")).await.unwrap();
    let stages = page["stages"].as_array().unwrap();
    let names: Vec<_> = stages
        .iter()
        .map(|stage| stage["stage"].as_str().unwrap())
        .collect();
    assert_eq!(
        (names.first(), names.last()),
        (Some(&"read"), Some(&"stream")),
        "{page}"
    );
    assert!(
        names.contains(&"decide") && names.contains(&"first_byte"),
        "{page}"
    );
    let number = |stage: &Value, key: &str| stage[key].as_f64().unwrap();
    let ends = stages
        .iter()
        .map(|stage| number(stage, "start_s") + number(stage, "duration_s"));
    let last = ends.fold(0.0, f64::max);
    let duration = page["outcome"]["duration-ms"].as_f64().unwrap() / 1e3;
    assert!((last - duration).abs() < 1e-3, "{last} of {duration}: {page}");
}
