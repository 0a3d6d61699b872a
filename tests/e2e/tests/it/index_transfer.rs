//! Routers that start and take over what others know of the engines' caches, over a real `nats-server`, where one is
//! installed.

use harness::{TestRouter, eventually, route_all};
use mock_engine::{MockConfig, MockEngine};
use nats_server::NatsSite;
use serde_json::{Value, json};

use crate::{fast, long_prompt};

/// Batches that the engine keeps for replays.
const KEPT: usize = 4;

async fn engine() -> MockEngine {
    let mut config = MockConfig {
        replay_batches: KEPT,
        ..MockConfig::default()
    };
    fast(0, &mut config);
    MockEngine::start(config).await.unwrap()
}

async fn router(site: &NatsSite, fleet: &str, name: &str, engine: &MockEngine) -> TestRouter {
    let toml = format!(
        "[replicas]\nservers = [\"{}\"]\ndead-after = \"1m\"\nfleet = \"{fleet}\"\nname = \"{name}\"\n\
         [index]\nfill-within = \"1m\"\n[pools.chat]\ntokenize-timeout = \"10s\"\n\
         [[pools.chat.workers]]\nname = \"w0\"\nurl = \"{}\"\n\
         kv-events = \"{}\"\nkv-replay = \"{}\"\n{}",
        site.url(),
        engine.url(),
        engine.kv_events(),
        engine.kv_replay(),
        route_all("cache-aware")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    eventually("the router is ready", || async {
        router.client.get("/readyz").await.unwrap().status == 200
    })
    .await;
    router
}

/// Returns the tokens that the index matched. `None` while it is not trusted.
async fn matched(router: &TestRouter, prompt: usize) -> Option<u64> {
    let body = json!({ "model": "mock", "prompt": long_prompt(prompt), "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    answer.header("x-conductor-matched-tokens").parse().ok()
}

/// Sends prompts until the engine has dropped the batch of the first one, and the router has the last one.
async fn fill(router: &TestRouter, engine: &MockEngine) {
    for prompt in 0..4 * KEPT {
        matched(router, prompt).await;
    }
    assert!(engine.stats().batches > 2 * KEPT as u64);
    let is_current = |page: &Value| {
        let feed = &page["feeds"][0];
        feed["state"] == "live" && feed["last_seq"] == engine.stats().batches - 1
    };
    router
        .admin_shows("/admin/feeds", "the feed is current", is_current)
        .await;
    assert!(matched(router, 0).await.is_some_and(|tokens| tokens > 0));
}

async fn metric(router: &TestRouter, line: &str) -> bool {
    let page = router.client.get("/metrics").await.unwrap().text();
    page.lines().any(|found| found == line)
}

#[tokio::test]
async fn a_new_router_knows_prefixes_that_are_older_than_the_engines_replay() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engine = engine().await;
    let first = router(&site, "main", "one", &engine).await;
    fill(&first, &engine).await;

    let second = router(&site, "main", "two", &engine).await;
    assert!(matched(&second, 0).await.is_some_and(|tokens| tokens > 0));
    let feeds = second.admin("/admin/feeds").await.unwrap();
    assert_eq!(feeds["feeds"][0]["complete"], true, "{feeds}");
    assert!(
        metric(
            &second,
            "conductor_replicas_index_fetches_total{result=\"taken\"} 1"
        )
        .await
    );
    assert!(metric(&first, "conductor_replicas_index_given_total 1").await);
    let filled = json!({"state": "filled", "unfilled": 0, "incomplete": 0, "from-routers": 1});
    let shows_fill = |page: &Value| page["own"]["fill"] == filled;
    second
        .admin_shows("/admin/replicas", "the fill", shows_fill)
        .await;
    let shows_other = |page: &Value| page["others"][0]["fill"] == filled;
    first
        .admin_shows("/admin/replicas", "the other router's fill", shows_other)
        .await;

    // The taken-over index follows the engine.
    fill(&second, &engine).await;
}

#[tokio::test]
async fn a_new_router_takes_over_nothing_of_another_fleet_and_is_ready() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engine = engine().await;
    let first = router(&site, "main", "one", &engine).await;
    fill(&first, &engine).await;

    let other = router(&site, "other", "two", &engine).await;
    assert_eq!(matched(&other, 0).await, Some(0));
    assert!(metric(&first, "conductor_replicas_index_given_total 0").await);
    let incomplete = json!({"state": "filled", "unfilled": 0, "incomplete": 1, "from-routers": 0});
    other
        .admin_shows("/admin/replicas", "the fill", |page| {
            page["own"]["fill"] == incomplete
        })
        .await;
}
