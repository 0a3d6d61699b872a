//! The router as a user meets it: real HTTP, real ZMQ, real components, mock engines.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its own functions too"
)]

mod access_log;
mod adapters;
mod admission;
mod affinity;
#[cfg(feature = "nats")]
mod agreement;
#[cfg(feature = "nats")]
mod agreement_faults;
#[cfg(feature = "nats")]
mod agreement_races;
mod churn;
mod clients;
mod config_reload;
mod cost;
mod discovery;
mod edge;
mod endpoints;
mod explore;
mod health;
#[cfg(feature = "nats")]
mod index_transfer;
mod indexer;
mod instances;
mod knowledge;
mod messages;
mod metrics;
#[cfg(feature = "nats")]
mod metrics_families;
mod metrics_page;
#[cfg(feature = "nats")]
mod metrics_reference;
mod operator_pages;
mod pd;
mod policy;
mod policy_folder;
mod queue_moves;
mod realtime;
#[cfg(feature = "nats")]
mod replicas;
mod responses;
mod secrets;
mod serving;
mod shown;
mod silence;
mod stores;
mod tenants;
mod tokens;
mod traces;
mod trials;
mod worker_discovery;
mod workers;

use harness::{Answer, Fleet, TestRouter, route_all};
use http::StatusCode;
use mock_engine::MockConfig;
use serde_json::{Value, json};

/// Starts mock engines that answer in no time.
async fn fast_fleet(count: usize) -> Fleet {
    Fleet::start(count, fast).await.unwrap()
}

/// Waits until a router's index is filled, whether workers are in service or not.
async fn filled(router: &TestRouter) {
    harness::eventually("the index is filled", || async {
        let page = router.client.get("/readyz").await.unwrap();
        !page.text().contains("filling")
    })
    .await;
}

fn fast(number: usize, config: &mut MockConfig) {
    config.seed = number as u64;
    config.time_scale = 100.0;
}

/// Returns a router over a fleet, with one route.
async fn router_over(fleet: &Fleet, policy: &str) -> TestRouter {
    router_with("", fleet, policy).await
}

/// Starts a router with more configuration: keys of the server, then tables.
async fn router_with(more: &str, fleet: &Fleet, policy: &str) -> TestRouter {
    let toml = format!("{more}\n{}{}", fleet.workers_toml(), route_all(policy));
    TestRouter::start(&toml).await.unwrap()
}

/// Returns a chat request of one user turn.
fn chat(text: &str, stream: bool) -> Value {
    json!({
        "model": "mock", "stream": stream, "max_tokens": 4,
        "messages": [{ "role": "user", "content": text }],
    })
}

/// Sends a chat request, which succeeds.
async fn answered(router: &TestRouter) -> Answer {
    let answer = router
        .client
        .post("/v1/chat/completions", &chat("hi", false))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer
}

/// Returns the worker that answers a request.
async fn worker_of(router: &TestRouter) -> String {
    answered(router).await.header("x-conductor-worker").to_owned()
}

/// Returns a prompt long enough for several cache blocks; different numbers share nothing.
fn long_prompt(number: usize) -> String {
    (0..120).map(|word| format!("topic{number}word{word} ")).collect()
}
