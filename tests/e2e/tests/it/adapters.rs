//! LoRA adapters that no configuration names: learned from the workers, served where they are, with blocks of their
//! own.

use std::collections::BTreeSet;

use harness::{Client, Fleet, TestRouter};
use http::StatusCode;
use mock_engine::{MockConfig, tokenize};
use serde_json::{Value, json};

use crate::affinity::caught_up;
use crate::{fast, long_prompt, router_with};

/// Starts two workers, of which the second has an adapter.
async fn half_adapted() -> Fleet {
    let adapted = |number, config: &mut MockConfig| {
        fast(number, config);
        if number == 1 {
            config.loras = vec!["sql".to_owned()];
        }
    };
    Fleet::start(2, adapted).await.unwrap()
}

/// Starts a router over workers of which only the address is configured. Waits until it has their models.
async fn router_of(fleet: &Fleet) -> TestRouter {
    let patient = "[pools.chat]\ntokenize-timeout = \"10s\"\n";
    let router = router_with(patient, fleet, "cache-aware").await;
    let is_live = |feed: &Value| feed["state"] == "live";
    router
        .admin_shows("/admin/feeds", "all feeds are live", |page| {
            let feeds = page["feeds"].as_array();
            feeds.is_some_and(|feeds| feeds.iter().all(is_live))
        })
        .await;
    lists(
        &router,
        1,
        "sql",
        fleet.engines[1].config().loras.contains(&"sql".to_owned()),
    )
    .await;
    router
}

/// Waits until a worker's list has an adapter, or has none of that name.
async fn lists(router: &TestRouter, worker: usize, adapter: &str, expected: bool) {
    router
        .admin_shows("/status", "the list is learned", |page| {
            let listed = &page["pools"][0]["workers"][worker]["models"]["listed"];
            listed.is_object() && listed["adapters"].get(adapter).is_some() == expected
        })
        .await;
}

#[derive(Debug, PartialEq)]
struct Placed {
    status: StatusCode,
    worker: String,
    matched: Option<u64>,
    cached: Option<u64>,
}

async fn send_request(router: &TestRouter, model: &str, prompt: &str) -> Placed {
    let body = json!({ "model": model, "prompt": prompt, "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    let page = answer.json().unwrap();
    Placed {
        status: answer.status,
        worker: answer.header("x-conductor-worker").to_owned(),
        matched: answer.header("x-conductor-matched-tokens").parse().ok(),
        cached: page["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64(),
    }
}

async fn call(engine: &mock_engine::MockEngine, path: &str, body: &Value) {
    let answer = Client::new(engine.url()).post(path, body).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

#[tokio::test]
async fn an_adapter_of_one_worker_is_served_there_and_its_blocks_are_its_own() {
    let fleet = half_adapted().await;
    let router = router_of(&fleet).await;
    let block = u64::from(MockConfig::default().block_size);
    for number in 0..4 {
        let prompt = long_prompt(number);
        let tokens = tokenize(&prompt).len() as u64;
        let (whole, most) = (tokens / block * block, (tokens - 1) / block * block);
        let first = send_request(&router, "mock", &prompt).await;
        assert_eq!((first.matched, first.cached), (Some(0), Some(0)), "{first:?}");
        caught_up(&router, &fleet).await;
        // The same tokens: cached for the base model, but not for the adapter.
        let adapted = send_request(&router, "sql", &prompt).await;
        assert_eq!((adapted.status, &*adapted.worker), (StatusCode::OK, "w1"));
        assert_eq!(
            (adapted.matched, adapted.cached),
            (Some(0), Some(0)),
            "{adapted:?}"
        );
        caught_up(&router, &fleet).await;
        for (model, worker) in [("mock", &*first.worker), ("sql", "w1")] {
            let again = send_request(&router, model, &prompt).await;
            assert_eq!(
                (again.matched, again.cached),
                (Some(whole), Some(most)),
                "{model}"
            );
            assert_eq!(again.worker, worker, "{model}");
        }
        caught_up(&router, &fleet).await;
    }
    assert_eq!(fleet.engines[0].requests("/v1/completions").len() % 2, 0);
}

#[tokio::test]
async fn no_request_for_an_adapter_fails_while_its_worker_is_one_of_several() {
    let fleet = half_adapted().await;
    // From the first moment on, before any list is known.
    let router = router_with("", &fleet, "round-robin").await;
    for number in 0..12 {
        for model in ["mock", "sql"] {
            let placed = send_request(&router, model, &long_prompt(number)).await;
            assert_eq!(placed.status, StatusCode::OK, "{model} {number}: {placed:?}");
        }
    }
}

#[tokio::test]
async fn adapters_come_and_go_while_the_router_runs() {
    let fleet = half_adapted().await;
    let router = router_of(&fleet).await;
    let missing = send_request(&router, "late", "hello").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    call(
        &fleet.engines[0],
        "/v1/load_lora_adapter",
        &json!({ "lora_name": "late", "lora_path": "/adapters/late" }),
    )
    .await;
    // Requests trigger a model list query at most once per second.
    harness::eventually("it is served", || async {
        send_request(&router, "late", "hello").await.status == StatusCode::OK
    })
    .await;
    assert_eq!(send_request(&router, "late", "hello").await.worker, "w0");
    let page = router.client.get("/v1/models").await.unwrap().json().unwrap();
    let names: BTreeSet<(&str, Option<&str>)> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| (model["id"].as_str().unwrap(), model["parent"].as_str()))
        .collect();
    let expected = [("late", Some("mock")), ("mock", None), ("sql", Some("mock"))];
    assert_eq!(names, BTreeSet::from(expected));

    // The request moves to the other worker after the first one's 404.
    call(
        &fleet.engines[1],
        "/v1/load_lora_adapter",
        &json!({ "lora_name": "late", "lora_path": "/adapters/late" }),
    )
    .await;
    call(
        &fleet.engines[0],
        "/v1/unload_lora_adapter",
        &json!({ "lora_name": "late" }),
    )
    .await;
    harness::eventually("it is served by the other", || async {
        send_request(&router, "late", "hello").await.worker == "w1"
    })
    .await;
    call(
        &fleet.engines[1],
        "/v1/unload_lora_adapter",
        &json!({ "lora_name": "late" }),
    )
    .await;
    harness::eventually("no worker gets it", || async {
        let gone = send_request(&router, "late", "hello").await;
        gone.status == StatusCode::NOT_FOUND && gone.worker.is_empty()
    })
    .await;
    lists(&router, 0, "late", false).await;
    let status = router.admin("/status").await.unwrap();
    let workers = status["pools"][0]["workers"].as_array().unwrap();
    assert!(workers.iter().all(|worker| worker["health"] == "ok"), "{status}");
}
