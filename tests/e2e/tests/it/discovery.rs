//! Discovered feeds: the router queries its workers for their publishers.

use std::net::Ipv4Addr;

use harness::{TestRouter, route_all};
use mock_engine::{MockConfig, MockEngine};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::{fast, fast_fleet, long_prompt};

/// Returns workers of which only the URL is known.
fn workers(engines: &[MockEngine]) -> String {
    let worker = |(number, engine): (usize, &MockEngine)| {
        format!(
            "[[pools.chat.workers]]\nname = \"w{number}\"\nurl = \"{}\"\n\n",
            engine.url()
        )
    };
    engines.iter().enumerate().map(worker).collect()
}

async fn router_over(engines: &[MockEngine]) -> TestRouter {
    let patient = "[pools.chat]\ntokenize-timeout = \"10s\"\n";
    let toml = format!("{patient}{}{}", workers(engines), route_all("cache-aware"));
    TestRouter::start(&toml).await.unwrap()
}

/// Waits until as many feeds are live, and no others are there.
async fn live_feeds(router: &TestRouter, count: usize) -> Value {
    let page = router.admin_shows("/admin/feeds", "the feeds are found and live", |page| {
        let feeds = page["feeds"].as_array().unwrap();
        feeds.len() == count && feeds.iter().all(|feed| feed["state"] == "live")
    });
    page.await
}

async fn matched(router: &TestRouter, prompt: &str) -> u64 {
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    answer.header("x-conductor-matched-tokens").parse().unwrap()
}

#[tokio::test]
async fn feeds_that_are_not_configured_are_discovered() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet.engines).await;
    live_feeds(&router, 2).await;
    let prompt = long_prompt(1);
    assert_eq!(matched(&router, &prompt).await, 0);
    router
        .admin_shows("/admin/feeds", "the prompt's blocks were reported", |page| {
            let feeds = page["feeds"].as_array().unwrap();
            feeds.iter().any(|feed| feed["last_seq"].is_u64())
        })
        .await;
    assert!(matched(&router, &prompt).await > 0);
}

#[tokio::test]
async fn an_engine_that_comes_back_with_other_ports_is_found_again() {
    // Keeps the port for both engines. It never listens, so that they can.
    let held = TcpSocket::new_v4().unwrap();
    held.set_reuseaddr(true).unwrap();
    held.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let mut config = MockConfig {
        port: held.local_addr().unwrap().port(),
        ..MockConfig::default()
    };
    fast(0, &mut config);
    let engine = MockEngine::start(config.clone()).await.unwrap();
    let engines = [engine];
    let router = router_over(&engines).await;
    let before = live_feeds(&router, 1).await;
    let [engine] = engines;
    engine.stop().await;
    let engine = MockEngine::start(config).await.unwrap();
    let after = router
        .admin_shows("/admin/feeds", "the new endpoint is followed", |page| {
            let feeds = page["feeds"].as_array().unwrap();
            let endpoint = |feed: &Value| feed["endpoint"] == engine.kv_events();
            feeds.len() == 1 && feeds.iter().all(endpoint) && feeds[0]["state"] == "live"
        })
        .await;
    assert_ne!(before["feeds"][0]["endpoint"], after["feeds"][0]["endpoint"]);
}

#[tokio::test]
async fn a_worker_that_publishes_nothing_is_served_without_a_feed() {
    let mut config = MockConfig {
        publish_events: false,
        ..MockConfig::default()
    };
    fast(0, &mut config);
    let engines = [MockEngine::start(config).await.unwrap()];
    let router = router_over(&engines).await;
    let queried = router.admin_shows("/admin/feeds", "the worker has answered", |page| {
        page["asked"][0]["state"] == "none"
    });
    assert_eq!(queried.await["feeds"], json!([]));
    let body = json!({ "model": "mock", "prompt": "hello", "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200);
}
