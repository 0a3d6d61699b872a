//! One call of each endpoint, in an order in which each finds what it needs.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::{Fleet, TestRouter, eventually, eventually_ok, sends_to};
use http::{Method, StatusCode};
use mock_engine::{RequestFault, Times};
use serde_json::{Value, json};

use super::recorder::{Call, Recorder};
use crate::simulations::with_traffic;

/// Admin key of the router.
pub(super) const KEY: &str = "key";

/// Starts the router of the calls: three workers, a recorded route, and one whose canary always fails.
pub(super) async fn router(fleet: &Fleet, folder: &Path) -> TestRouter {
    let key = folder.join("admin.key");
    fs::write(&key, KEY).unwrap();
    let toml = format!(
        "admin-api-key = {{ file = {key:?} }}\nattempts = 1\n[indexer]\nlisten = \"127.0.0.1:0\"\n\
         [record]\ncolumns = \"all\"\nexplain-sample = 1.0\n\
         [pools.chat.health]\nfailure-min-requests = 0\n{}\
         [[routes]]\nmatch.path = \"/v1/completions\"\npool = \"chat\"\npolicy = \"round-robin\"\n\
         split = {{ round-robin = 50, bad = 50 }}\ncanary = {{ consecutive-failures = 2 }}\n\
         [[routes]]\npool = \"chat\"\npolicy = \"cache-aware\"\n[policies.bad]\npath = \"policies/bad.wasm\"\n",
        fleet.workers_toml()
    );
    // The component must be there at the start.
    let component = folder.join("bad.wasm");
    fs::write(&component, sends_to(2, 0).unwrap()).unwrap();
    let toml = toml.replace("policies/bad.wasm", component.to_str().unwrap());
    TestRouter::start(&toml).await.unwrap()
}

/// Calls the router's own pages of the clients' listener.
pub(super) async fn clients(api: &mut Recorder) {
    for path in [
        "/health",
        "/ping",
        "/readyz",
        "/version",
        "/load",
        "/metrics",
        "/v1/models",
        "/openapi.json",
        "/status",
    ] {
        api.call(Call::get(path)).await;
    }
    api.call(Call {
        method: Method::POST,
        ..Call::get("/ping")
    })
    .await;
    api.call(Call::get("/v1/models/{id}").of(&[("id", "mock")])).await;
    instances(api, "10.0.0.8:8000").await;
}

async fn instances(api: &mut Recorder, address: &str) {
    let added = json!({ "instance": address, "type": "mixed", "pool": "chat" });
    api.call(Call::post("/instances/add", added)).await;
    let removed = json!({ "instance": address, "pool": "chat" });
    api.call(Call::post("/instances/remove", removed)).await;
}

/// Sends a chat and returns its id.
async fn chat(router: &TestRouter) -> String {
    let body =
        json!({ "model": "mock", "max_tokens": 4, "messages": [{ "role": "user", "content": "hello" }] });
    let headers = [("x-request-id", "req-1")];
    let sent = router.client.stream(
        Method::POST,
        "/v1/chat/completions",
        &headers,
        body.to_string().into(),
    );
    let answer = sent.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-request-id").to_owned()
}

/// Calls the admin pages, but those of simulations.
pub(super) async fn admin(api: &mut Recorder, router: &TestRouter, fleet: &Fleet) {
    let id = chat(router).await;
    let faults = fleet.engines[2].faults();
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    faults.on_requests(
        RequestFault::Status {
            status,
            retry_after: None,
        },
        Times::UntilCleared,
    );
    let sessions = AtomicUsize::new(0);
    let stopped = eventually("the canary is stopped", || async {
        let session = format!("session-{}", sessions.fetch_add(1, Ordering::Relaxed));
        let body = json!({ "model": "mock", "prompt": "hello", "max_tokens": 1 }).to_string();
        let headers = [("x-session-id", &*session)];
        let sent = router
            .client
            .stream(Method::POST, "/v1/completions", &headers, body.into());
        let answer = sent.await.unwrap().whole().await.unwrap();
        drop(answer);
        let page = router.admin("/admin/trials").await.unwrap();
        page["trials"][0]["arms"]
            .as_array()
            .is_some_and(|arms| arms.iter().any(|arm| arm["state"] == "stopped"))
    });
    stopped.await;
    faults.clear();
    for path in ["/", "/admin", "/ui/", "/status", "/health", "/readyz", "/metrics"] {
        api.call(Call::get(path)).await;
    }
    for page in [
        "config",
        "config/history",
        "discovery",
        "feeds",
        "policies",
        "replicas",
        "trials",
        "me",
        "index",
    ] {
        api.call(Call::get(&format!("/admin/{page}"))).await;
    }
    let ended = |page: &Value| !page["requests"][0]["outcome"].is_null();
    router
        .admin_shows("/admin/requests", "the requests have ended", ended)
        .await;
    router
        .admin_shows("/admin/history", "a sample", |page| {
            page["at"].as_array().is_some_and(|at| !at.is_empty())
        })
        .await;
    api.call(Call {
        query: "pool=chat&limit=2",
        ..Call::get("/admin/requests")
    })
    .await;
    api.call(Call {
        query: "topics=fleet",
        ..Call::get("/admin/stream")
    })
    .await;
    api.call(Call::get("/admin/history")).await;
    let request = [("id", &*id)];
    api.call(Call::get("/admin/explain/{id}").of(&request)).await;
    let other = json!({ "policy": "cache-aware" });
    api.call(Call::post("/admin/explain/{id}/replay", other).of(&request))
        .await;
    let lookup = json!({ "model": "mock", "pool": "chat", "prompt": "hello" });
    api.call(Call::post("/admin/index/lookup", lookup)).await;
    let of_bad = [("policy", "bad")];
    api.call(Call::post("/admin/canaries/{policy}/resume", json!({})).of(&of_bad))
        .await;
    policies(api, router).await;
    for (path, reason) in [
        ("/admin/workers/drain", "a new driver"),
        ("/admin/workers/resume", "the driver is there"),
    ] {
        let worker = json!({ "pool": "chat", "worker": "w0", "reason": reason });
        api.call(Call::post(path, worker)).await;
    }
    instances(api, "10.0.0.9:8000").await;
    api.call(Call {
        query: "limit=2",
        ..Call::get("/admin/changes")
    })
    .await;
    configuration(api).await;
}

/// Uploads two versions of a policy, goes back and forth, and tries it on the second route.
async fn policies(api: &mut Recorder, router: &TestRouter) {
    let mine = [("policy", "mine")];
    for version in 1..=2 {
        api.upload("/admin/policies/{policy}", &mine, sends_to(0, version).unwrap())
            .await;
    }
    for action in ["rollback", "resume"] {
        let path = format!("/admin/policies/{{policy}}/{action}");
        api.call(Call::post(&path, json!({})).of(&mine)).await;
    }
    for (action, body) in [
        ("shadow", json!({ "route": 2, "sample": 0.1 })),
        ("canary", json!({ "route": 2, "percent": 5 })),
        ("promote", json!({ "route": 2 })),
        ("retract", json!({ "route": 2 })),
    ] {
        let path = format!("/admin/policies/{{policy}}/{action}");
        api.call(Call::post(&path, body).of(&mine)).await;
    }
    let page = router.admin("/admin/policies").await.unwrap();
    assert!(page.to_string().contains("mine"), "{page}");
}

async fn configuration(api: &mut Recorder) {
    let file = api.call(Call::get("/admin/config/file")).await;
    let text = file["text"]
        .as_str()
        .unwrap()
        .replace("explain-sample = 1.0", "explain-sample = 0.5");
    let edit = json!({ "text": text, "reason": "fewer records" });
    api.call(Call::post("/admin/config/check", json!({ "text": text })))
        .await;
    let sha256 = [("if-match", file["sha256"].as_str().unwrap())];
    api.call(Call {
        method: Method::PUT,
        headers: &sha256,
        ..Call::post("/admin/config/file", edit)
    })
    .await;
    let history = api.call(Call::get("/admin/config/history")).await;
    let id = history["generations"][0]["id"].to_string();
    api.call(Call::get("/admin/config/history/{id}/diff").of(&[("id", &id)]))
        .await;
    api.call(Call::post("/admin/reload", json!({}))).await;
}

/// Calls the indexer, which follows an engine that is no worker.
pub(super) async fn indexer(api: &mut Recorder, fleet: &Fleet) {
    let engine = &fleet.engines[0];
    let block = engine.config().block_size;
    let registration = json!({
        "endpoint": engine.kv_events(), "replay_endpoint": engine.kv_replay(), "type": "vLLM", "modelname": "mock",
        "instance_id": "gpu-1", "block_size": block, "dp_rank": 0,
    });
    api.call(Call::post("/register", registration)).await;
    let prompt: Vec<u32> = (1_000..1_064).collect();
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 1 });
    let answer = harness::Client::new(engine.url())
        .post("/v1/completions", &body)
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let query = json!({ "model": "mock", "block_size": block, "token_ids": prompt });
    let client = api.client.clone();
    eventually_ok("the indexer has the prompt", || async {
        let answer = client.post("/query", &query).await.unwrap().json().unwrap();
        match answer["instances"]["gpu-1"]["longest_matched"].as_u64() {
            Some(1..) => Ok(()),
            _ => Err(answer.to_string()),
        }
    })
    .await;
    api.call(Call::post("/query", query)).await;
    let hashes = json!({ "model": "mock", "block_size": block, "seq_hashes": [7_127_430_u64] });
    api.call(Call::post("/query_by_hash", hashes)).await;
    let first = json!({
        "instances": ["gpu-1"], "token_ids": prompt, "model_name": "mock", "lora_id": -1,
    });
    api.call(Call::post("/cache", first)).await;
    for path in ["/services", "/global_view", "/health", "/"] {
        api.call(Call::get(path)).await;
    }
    let key = json!({ "instance_id": "gpu-1", "dp_rank": 0 });
    api.call(Call::post("/unregister", key)).await;
}

/// Calls the pages of simulations, which need the program and recorded traffic.
pub(super) async fn simulations(api: &mut Recorder, fleet: &Fleet, folder: &Path) {
    let binary = with_traffic(fleet, folder).await;
    let client = std::mem::replace(&mut api.client, binary.admin.clone());
    let body = json!({ "policies": ["cache-aware", "other"], "rate": 2.0 });
    let started = api.call(Call::post("/admin/simulations", body)).await;
    let id = started["id"].as_str().unwrap();
    let done = binary.ended(id).await;
    assert_eq!(done["state"], "done", "{done}");
    let one = [("id", id)];
    api.call(Call::get("/admin/simulations")).await;
    api.call(Call::get("/admin/simulations/{id}").of(&one)).await;
    api.call(Call {
        method: Method::DELETE,
        ..Call::get("/admin/simulations/{id}").of(&one)
    })
    .await;
    api.client = client;
}
