//! The index as a service, over engines that are workers and engines that are none.

use harness::{Client, TestRouter, eventually, eventually_ok, route_all};
use mock_engine::{MockEngine, tokenize};
use serde_json::{Value, json};

use crate::stores::{publisher, stored, subscribed};
use crate::{fast_fleet, long_prompt};

const INDEXER: &str = "[indexer]\nlisten = \"127.0.0.1:0\"\n";

fn indexer(router: &TestRouter) -> &Client {
    router.indexer.as_ref().unwrap()
}

async fn post(router: &TestRouter, path: &str, body: &Value) -> Value {
    indexer(router).post(path, body).await.unwrap().json().unwrap()
}

/// Sends a prompt to an engine directly. Returns its tokens, which the engine then caches.
async fn prompt_of(engine: &MockEngine, number: usize) -> Vec<u32> {
    let prompt = long_prompt(number);
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 1 });
    let answer = Client::new(engine.url())
        .post("/v1/completions", &body)
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    tokenize(&prompt)
}

/// Starts a router with the first engine as its worker and the second as a configured service. Each has a prompt of its
/// own. Returns that of the worker, once both prompts are found.
async fn with_service(worker: &MockEngine, service: &MockEngine) -> (TestRouter, Vec<u32>) {
    let toml = format!(
        "{INDEXER}[[indexer.services]]\nendpoint = \"{}\"\nreplay = \"{}\"\nmodel = \"mock\"\ninstance = \"gpu-1\"\n\
         block-size = {}\n\n{}{}",
        service.kv_events(),
        service.kv_replay(),
        service.config().block_size,
        harness::workers_toml(std::slice::from_ref(worker)),
        route_all("cache-aware"),
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let first = prompt_of(worker, 0).await;
    let second = prompt_of(service, 1).await;
    holds_all(&router, worker, "w0", &first).await;
    holds_all(&router, service, "gpu-1", &second).await;
    (router, first)
}

/// Waits until the instance is reported to hold all whole blocks of the prompt.
async fn holds_all(router: &TestRouter, engine: &MockEngine, instance: &str, tokens: &[u32]) {
    let block = engine.config().block_size as usize;
    let whole = tokens.len() / block * block;
    let query = json!({ "model": "mock", "block_size": block, "token_ids": tokens });
    eventually_ok("the indexer has the prompt", || async {
        let answer = post(router, "/query", &query).await;
        match answer["instances"][instance]["longest_matched"].as_u64() {
            Some(matched) if matched as usize == whole => Ok(()),
            _ => Err(answer.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_is_registered_is_followed_until_it_is_unregistered() {
    let fleet = fast_fleet(1).await;
    let engine = &fleet.engines[0];
    let router = TestRouter::start(INDEXER).await.unwrap();
    let before = prompt_of(engine, 0).await;
    let registration = json!({
        "endpoint": engine.kv_events(), "replay_endpoint": engine.kv_replay(), "type": "vLLM", "modelname": "mock",
        "instance_id": "gpu-1", "block_size": engine.config().block_size, "dp_rank": 0,
    });
    let answer = post(&router, "/register", &registration).await;
    assert_eq!(
        answer,
        json!({"status": "registered successfully", "instance_id": "gpu-1"})
    );
    holds_all(&router, engine, "gpu-1", &before).await;
    let after = prompt_of(engine, 1).await;
    holds_all(&router, engine, "gpu-1", &after).await;

    let key = json!({ "instance_id": "gpu-1", "dp_rank": 0 });
    let answer = post(&router, "/unregister", &key).await;
    assert_eq!(answer["removed_instances"], json!(["gpu-1|default|0"]));
    let query = json!({ "model": "mock", "block_size": 16, "token_ids": after });
    assert_eq!(post(&router, "/query", &query).await, json!({"instances": {}}));
    router
        .admin_shows("/admin/feeds", "its feed is gone", |page| {
            page["feeds"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
}

#[tokio::test]
async fn workers_and_configured_services_are_instances() {
    let fleet = fast_fleet(2).await;
    let [worker, service] = &fleet.engines[..] else {
        unreachable!("two were started")
    };
    let (router, _) = with_service(worker, service).await;
    let services = indexer(&router).get("/services").await.unwrap().json().unwrap();
    let types: Vec<_> = services["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["Type"])
        .collect();
    assert_eq!(types, ["vLLM", "worker"]);
}

#[tokio::test]
async fn without_workers_the_router_is_an_indexer_and_refuses_requests() {
    let router = TestRouter::start(INDEXER).await.unwrap();
    let health = indexer(&router).get("/health").await.unwrap();
    assert_eq!(health.status, 200);
    let answer = router
        .client
        .post("/v1/completions", &json!({"model": "m", "prompt": "x"}))
        .await
        .unwrap();
    assert_eq!(answer.status, 404, "{}", answer.text());
}

#[tokio::test]
async fn a_store_that_is_registered_is_followed_until_it_is_unregistered() {
    let (publisher, endpoint) = publisher();
    let router = TestRouter::start(INDEXER).await.unwrap();
    let registration = json!({
        "endpoint": endpoint, "type": "Mooncake", "modelname": "mock", "instance_id": "store", "block_size": 16,
        "dp_rank": 0,
    });
    post(&router, "/register", &registration).await;
    let publisher = subscribed(publisher).await;
    let frames = [Vec::new(), 1_u64.to_be_bytes().to_vec(), stored(1)];
    publisher.send_multipart(frames, 0).unwrap();
    let held = |blocks: usize| {
        let router = &router;
        async move {
            let expected = format!("conductor_index_store_blocks {blocks}\n");
            eventually_ok("the index has the store", || async {
                let page = router.admin.get("/metrics").await.unwrap().text();
                if page.contains(&expected) {
                    Ok(())
                } else {
                    Err(page)
                }
            })
            .await;
        }
    };
    held(1).await;
    // The feed reports its state after its blocks.
    eventually_ok("the service is live", || async {
        let services = indexer(&router).get("/services").await.unwrap().json().unwrap();
        match services["services"][0]["State"] == "live" {
            true => Ok(()),
            false => Err(services),
        }
    })
    .await;
    router
        .admin_shows("/admin/feeds", "the store has a block", |page| {
            let store = &page["stores"][0];
            store["store"] == "store|default|0" && store["stored"] == 1
        })
        .await;
    let live = "conductor_store_feed_live{store=\"store|default|0\"}";
    eventually("the metric is set", || async {
        router.metric(live).await.unwrap() == Some(1.0)
    })
    .await;
    post(
        &router,
        "/unregister",
        &json!({"instance_id": "store", "dp_rank": 0}),
    )
    .await;
    held(0).await;
    router
        .admin_shows("/admin/feeds", "the store is gone", |page| {
            page["stores"] == json!([])
        })
        .await;
}

#[tokio::test]
async fn blocks_of_a_stopped_engine_are_no_longer_reported() {
    let mut fleet = fast_fleet(2).await;
    let (worker, service) = (fleet.engines.remove(0), fleet.engines.remove(0));
    let (router, first) = with_service(&worker, &service).await;
    worker.stop().await;
    service.stop().await;
    let query = json!({ "model": "mock", "block_size": 16, "token_ids": first });
    let expected = json!({ "instances": {}, "not_current": { "gpu-1": [0], "w0": [0] } });
    eventually_ok("the indexer leaves out what is not current", || async {
        let answer = post(&router, "/query", &query).await;
        if answer == expected {
            Ok(())
        } else {
            Err(answer.to_string())
        }
    })
    .await;
}
