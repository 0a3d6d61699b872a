//! The prefix index and lookups in it.

use bytes::Bytes;
use harness::{TestRouter, eventually_ok};
use http::{Method, StatusCode};
use mock_engine::tokenize;
use serde_json::{Value, json};

use crate::{fast_fleet, long_prompt, router_over, router_with};

const LOOKUP: &str = "/admin/index/lookup";
const KEY: &str = "sk-of-the-explorer";

async fn look_up(router: &TestRouter, body: &Value) -> (StatusCode, Value) {
    let answer = router.admin.post(LOOKUP, body).await.unwrap();
    (answer.status, answer.json().unwrap())
}

async fn complete(router: &TestRouter, prompt: &str) {
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 1 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

/// Waits until one worker holds the whole blocks of a prompt by its own events. Returns the lookup.
async fn held(router: &TestRouter, body: &Value) -> Value {
    eventually_ok("a worker holds the prompt", || async {
        let (status, found) = look_up(router, body).await;
        let workers = found["workers"].as_array().cloned().unwrap_or_default();
        let is_held = |worker: &Value| {
            worker["live"] == json!(true)
                && worker["matched_blocks"] == found["blocks"]
                && worker["tiers"]["device"].as_u64() > worker["expected_tokens"].as_u64().map(|_| 0)
        };
        if status == StatusCode::OK && workers.iter().any(is_held) {
            Ok(found)
        } else {
            Err(found.to_string())
        }
    })
    .await
}

/// Enough time to get each prompt's tokens.
const PATIENT: &str = "[pools.chat]\ntokenize-timeout = \"10s\"\n";

#[tokio::test]
async fn a_lookup_shows_what_each_worker_holds_of_a_text_or_of_tokens() {
    let fleet = fast_fleet(2).await;
    // Predictions would end between two lookups.
    let without_predictions = format!("[index]\nexpect-for = \"0s\"\n{PATIENT}");
    let router = router_with(&without_predictions, &fleet, "cache-aware").await;
    let prompt = long_prompt(1);
    complete(&router, &prompt).await;
    let by_text = json!({ "model": "mock", "prompt": prompt });
    let found = held(&router, &by_text).await;
    assert_eq!(found["pool"], "chat");
    assert_eq!(found["how"], "worker");
    assert!(!found.to_string().contains("topic1word1"), "{found}");
    let workers = found["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2, "{found}");
    let matched = |worker: &Value| worker["matched_tokens"].as_u64().unwrap();
    assert_eq!(workers.iter().filter(|worker| matched(worker) > 0).count(), 1);
    for worker in workers {
        let tiers = worker["tiers"].as_object().unwrap();
        let sum: u64 = tiers.values().filter_map(Value::as_u64).sum();
        assert_eq!(sum, matched(worker), "{worker}");
    }

    let by_tokens = json!({ "model": "mock", "pool": "chat", "tokens": tokenize(&prompt) });
    let (_, other) = look_up(&router, &by_tokens).await;
    assert_eq!(other["how"], "given");
    assert_eq!(other["workers"], found["workers"]);
    assert_eq!(other["blocks"], found["blocks"]);

    let queries = "conductor_index_queries_total{pool=\"chat\"}";
    assert_eq!(
        router.metric(queries).await.unwrap(),
        Some(1.0),
        "only the request"
    );
}

#[tokio::test]
async fn lookups_that_cannot_be_made_are_refused_with_why() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "cache-aware").await;
    let long = "word ".repeat(300_000);
    for (body, status, code) in [
        (json!({ "prompt": "a" }), 400, "parameter_invalid"),
        (json!({ "model": "mock" }), 400, "parameter_invalid"),
        (json!({ "model": "none", "prompt": "a" }), 404, "model_not_served"),
        (
            json!({ "model": "mock", "pool": "none", "prompt": "a" }),
            404,
            "pool_not_found",
        ),
        (json!([1]), 400, "invalid_json"),
        (json!({ "model": "mock", "prompt": long }), 413, "body_too_large"),
    ] {
        let (found, refused) = look_up(&router, &body).await;
        assert_eq!(found.as_u16(), status, "{refused}");
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
}

#[tokio::test]
async fn a_lookup_needs_the_admin_key() {
    let fleet = fast_fleet(1).await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("admin.key");
    std::fs::write(&key, KEY).unwrap();
    let router = TestRouter::start(&format!(
        "admin-api-key = {{ file = {key:?} }}\n{}{}",
        fleet.workers_toml(),
        harness::route_all("cache-aware"),
    ))
    .await
    .unwrap();
    let body = Bytes::from(json!({ "model": "mock", "prompt": "a" }).to_string());
    for (key, status) in [(None, 401), (Some("wrong"), 401), (Some(KEY), 200)] {
        let headers: Vec<_> = key.map(|key| ("x-api-key", key)).into_iter().collect();
        let sent = router
            .admin
            .stream(Method::POST, LOOKUP, &headers, body.clone())
            .await;
        let answer = sent.unwrap().whole().await.unwrap();
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    }
    assert_eq!(
        router.admin.get("/admin/index").await.unwrap().status,
        StatusCode::OK,
        "reads are open"
    );
}

#[tokio::test]
async fn the_index_page_has_blocks_by_worker_popular_prefixes_and_the_funnel() {
    let fleet = fast_fleet(2).await;
    let router = router_with(PATIENT, &fleet, "cache-aware").await;
    let shared = long_prompt(7);
    for number in 1..=3 {
        let tail: String = (0..40).map(|word| format!("tail{number}word{word} ")).collect();
        complete(&router, &format!("{shared}{tail}")).await;
    }
    let page = router
        .admin_shows("/admin/index", "a shared prefix is popular", |page| {
            page["hottest"][0]["continuations"].as_u64() >= Some(3)
        })
        .await;
    let first = &page["hottest"][0];
    let tokens = tokenize(&shared).len() as u64;
    let depth = first["depth_tokens"].as_u64().unwrap();
    assert!(depth > 0 && depth <= tokens, "{depth} of {tokens}: {first}");
    assert_eq!(first["pool"], "chat");
    assert_eq!(first["requests"], Value::Null);
    assert!(!first["workers"].as_array().unwrap().is_empty());
    let workers = page["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2);
    let held: u64 = workers
        .iter()
        .filter_map(|of| of["tiers"]["device"].as_u64())
        .sum();
    let expected: u64 = workers.iter().filter_map(|of| of["expected"].as_u64()).sum();
    assert!(held + expected > 0, "{page}");
    let funnel = &page["funnel"]["chat"];
    assert!(funnel["prompt_tokens"].as_u64() >= Some(3 * tokens), "{funnel}");
    assert!(
        funnel["best_tokens"].as_u64() >= funnel["matched_tokens"].as_u64(),
        "{funnel}"
    );
    assert!(funnel["cached_tokens"].is_u64(), "{funnel}");
}
