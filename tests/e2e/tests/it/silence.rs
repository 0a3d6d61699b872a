//! Silent feeds: the index does not trust its blocks of a worker while the engine works and reports no events.

use harness::{TestRouter, eventually, route_all};
use mock_engine::{MockConfig, MockEngine};
use serde_json::{Value, json};

use crate::{fast, long_prompt};

async fn engine() -> MockEngine {
    let mut config = MockConfig::default();
    fast(0, &mut config);
    MockEngine::start(config).await.unwrap()
}

/// Returns a router that follows the engine, with or without its replays.
async fn router_over(engine: &MockEngine, replay: bool) -> TestRouter {
    let mut toml = format!(
        "[pools.chat]\ntokenize-timeout = \"10s\"\n[[pools.chat.workers]]\nname = \"w0\"\nurl = \"{}\"\nkv-events = \"{}\"\n",
        engine.url(),
        engine.kv_events()
    );
    if replay {
        toml += &format!("kv-replay = \"{}\"\n", engine.kv_replay());
    }
    TestRouter::start(&(toml + &route_all("cache-aware")))
        .await
        .unwrap()
}

/// Returns the tokens that the index matched. `None` while it is not trusted.
async fn matched(router: &TestRouter, prompt: usize) -> Option<u64> {
    let body = json!({ "model": "mock", "prompt": long_prompt(prompt), "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    answer.header("x-conductor-matched-tokens").parse().ok()
}

fn feed(page: &Value) -> &Value {
    &page["feeds"][0]
}

/// Sends prompts, `first` and those after it, until what the feed shows is as wanted. Each is another one: the engine
/// has nothing to publish of a prompt that it still holds.
async fn shown(what: &str, router: &TestRouter, first: usize, wanted: impl Fn(&Value) -> bool) {
    let prompts = std::cell::Cell::new(first);
    eventually(what, || async {
        matched(router, prompts.replace(prompts.get() + 1)).await;
        wanted(feed(&router.admin("/admin/feeds").await.unwrap()))
    })
    .await;
}

fn live(feed: &Value) -> bool {
    feed["state"] == "live"
}

#[tokio::test]
async fn a_publisher_that_falls_silent_is_found_out_by_its_replays() {
    let engine = engine().await;
    let router = router_over(&engine, true).await;
    shown("an event was received", &router, 100, live).await;
    engine.faults().mute_publisher(true);
    let silent = |page: &Value| feed(page)["silent"] == true && feed(page)["state"] == "rebuilding";
    router
        .admin_shows("/admin/feeds", "the feed is silent", silent)
        .await;
    matched(&router, 2).await;
    engine.faults().mute_publisher(false);
    let recovered =
        |page: &Value| feed(page)["state"] == "live" && feed(page)["last_seq"] == engine.stats().batches - 1;
    router
        .admin_shows("/admin/feeds", "the feed has caught up", recovered)
        .await;
    assert!(matched(&router, 2).await.is_some_and(|tokens| tokens > 0));
}

#[tokio::test]
async fn without_replays_an_engine_that_works_and_publishes_nothing_is_found_out_by_its_metrics() {
    let engine = engine().await;
    let router = router_over(&engine, false).await;
    shown("an event was received", &router, 100, live).await;
    engine.faults().mute_publisher(true);
    shown("the feed is silent", &router, 1_000, |feed| {
        feed["silent"] == true
    })
    .await;
    engine.faults().mute_publisher(false);
    shown("an event was received again", &router, 100_000, live).await;
}

#[tokio::test]
async fn a_new_router_is_ready_once_replays_have_filled_its_index() {
    let engine = engine().await;
    let first = router_over(&engine, true).await;
    shown("events were received", &first, 100, live).await;
    matched(&first, 7).await;
    eventually("the engine published the prompt", || async {
        matched(&first, 7).await.is_some_and(|tokens| tokens > 0)
    })
    .await;
    let second = router_over(&engine, true).await;
    eventually("the second router is ready", || async {
        second.client.get("/readyz").await.unwrap().status == 200
    })
    .await;
    let known = matched(&second, 7).await;
    assert!(known.is_some_and(|tokens| tokens > 0), "{known:?}");
}

#[tokio::test]
async fn a_router_whose_replay_is_not_answered_is_ready_after_the_time_for_the_fill() {
    let engine = engine().await;
    // Accepts connections into its backlog, and never answers.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let toml = format!(
        "[index]\nfill-within = \"200ms\"\n[[pools.chat.workers]]\nname = \"w0\"\nurl = \"{}\"\nkv-events = \"{}\"\nkv-replay = \"tcp://{}\"\n{}",
        engine.url(),
        engine.kv_events(),
        deaf.local_addr().unwrap(),
        route_all("cache-aware")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    eventually("the router is ready", || async {
        router.client.get("/readyz").await.unwrap().status == 200
    })
    .await;
    let metrics = router.client.get("/metrics").await.unwrap().text();
    for line in [
        "conductor_index_unfilled_feeds 1\n",
        "conductor_index_late_feeds 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}
