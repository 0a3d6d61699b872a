//! The index is correct: its matches are those that the engine itself finds in its cache.

use harness::{Fleet, TestRouter, eventually};
use http::Method;
use mock_engine::{MockConfig, MockEngine, tokenize};
use serde_json::{Value, json};

use crate::{fast, fast_fleet, long_prompt, router_with};

/// Placement of a prompt, the tokens matched in the index, and the tokens cached in the engine.
#[derive(Debug)]
struct Placed {
    worker: String,
    matched: u64,
    cached: u64,
}

async fn send_request(router: &TestRouter, prompt: &str) -> Placed {
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    let usage = &answer.json().unwrap()["usage"];
    Placed {
        worker: answer.header("x-conductor-worker").to_owned(),
        matched: answer.header("x-conductor-matched-tokens").parse().unwrap(),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
    }
}

/// Sends a prompt that one worker has served. The index matches all its whole blocks, and so does the engine, which
/// only computes the last token.
async fn finds_all(router: &TestRouter, prompt: &str) -> Placed {
    let block = u64::from(MockConfig::default().block_size);
    let tokens = tokenize(prompt).len() as u64;
    let placed = send_request(router, prompt).await;
    let whole = |tokens: u64| tokens / block * block;
    assert_eq!(
        (placed.matched, placed.cached),
        (whole(tokens), whole(tokens - 1)),
        "{placed:?}"
    );
    placed
}

/// Starts a cache-aware router that follows all its feeds, and has enough time to get a prompt's tokens.
async fn informed_router_over(fleet: &Fleet) -> TestRouter {
    let patient = "[pools.chat]\ntokenize-timeout = \"10s\"\n";
    informed(router_with(patient, fleet, "cache-aware").await).await
}

/// Waits until all feeds of the router are live: before that matches are unknown.
pub(crate) async fn informed(router: TestRouter) -> TestRouter {
    let is_live = |feed: &Value| feed["state"] == "live";
    router
        .admin_shows("/admin/feeds", "all feeds are live", |page| {
            page["feeds"]
                .as_array()
                .is_some_and(|feeds| feeds.iter().all(is_live))
        })
        .await;
    router
}

/// Waits until the index has all events of the engines.
pub(crate) async fn caught_up(router: &TestRouter, fleet: &Fleet) {
    let applied = |feed: &Value| feed["last_seq"].as_u64().map_or(0, |last| last + 1);
    router
        .admin_shows("/admin/feeds", "the index has caught up", |page| {
            let published = fleet.engines.iter().map(|engine| engine.stats().batches);
            let feeds = page["feeds"].as_array().into_iter().flatten();
            published.eq(feeds.map(applied))
        })
        .await;
}

#[tokio::test]
async fn a_prompt_goes_back_to_the_worker_that_holds_its_prefix() {
    let fleet = fast_fleet(4).await;
    let router = informed_router_over(&fleet).await;
    for number in 0..8 {
        let prompt = long_prompt(number);
        let first = send_request(&router, &prompt).await;
        assert_eq!((first.matched, first.cached), (0, 0), "prompt {number}");
        caught_up(&router, &fleet).await;
        let again = finds_all(&router, &prompt).await;
        assert_eq!(again.worker, first.worker, "prompt {number}");
    }
}

/// SHA-256 of `test` and of `other`.
const HASHES: [&str; 2] = [
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa",
];

#[tokio::test]
async fn a_tenant_finds_nothing_of_what_another_left_in_the_caches() {
    let fleet = fast_fleet(2).await;
    let toml = |is_isolated: bool| {
        format!(
            "decision-headers = true\n[clients.one]\nkey-sha256 = [\"{}\"]\n[clients.two]\nkey-sha256 = [\"{}\"]\n\
             [pools.chat]\ntokenize-timeout = \"10s\"\nisolate-prefixes = {is_isolated}\n",
            HASHES[0], HASHES[1]
        )
    };
    for (is_isolated, prompt) in [(false, long_prompt(1)), (true, long_prompt(2))] {
        let router = informed(router_with(&toml(is_isolated), &fleet, "cache-aware").await).await;
        let send = async |key: &str| {
            let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 2 }).to_string();
            let headers = [("x-api-key", key)];
            let sent = router
                .client
                .stream(Method::POST, "/v1/completions", &headers, body.into());
            let answer = sent.await.unwrap().whole().await.unwrap();
            let usage = &answer.json().unwrap()["usage"];
            let matched: u64 = answer.header("x-conductor-matched-tokens").parse().unwrap();
            (
                matched,
                usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
            )
        };
        assert_eq!(send("test").await, (0, 0));
        caught_up(&router, &fleet).await;
        let (own, _) = send("test").await;
        assert!(own > 0, "its own is found");
        caught_up(&router, &fleet).await;
        let (matched, cached) = send("other").await;
        assert_eq!(
            (matched > 0, cached > 0),
            (!is_isolated, !is_isolated),
            "{is_isolated}"
        );
    }
}

#[tokio::test]
async fn a_router_that_starts_late_learns_what_is_cached_by_replay() {
    let fleet = fast_fleet(2).await;
    let prompt = long_prompt(1);
    {
        let router = informed_router_over(&fleet).await;
        send_request(&router, &prompt).await;
    }
    let late = informed_router_over(&fleet).await;
    caught_up(&late, &fleet).await;
    finds_all(&late, &prompt).await;
}

/// Starts one engine whose cache holds four of the prompts.
async fn small_fleet() -> Fleet {
    let small = |number, config: &mut MockConfig| {
        fast(number, config);
        config.cache_blocks = 64;
    };
    Fleet::start(1, small).await.unwrap()
}

#[tokio::test]
async fn blocks_evicted_by_an_engine_are_forgotten() {
    let fleet = small_fleet().await;
    let router = informed_router_over(&fleet).await;
    let prompt = long_prompt(0);
    send_request(&router, &prompt).await;
    caught_up(&router, &fleet).await;
    let before = finds_all(&router, &prompt).await;
    // The fourth of these finds room only in place of this prompt's last blocks.
    for number in 1..=4 {
        send_request(&router, &long_prompt(number)).await;
    }
    caught_up(&router, &fleet).await;
    let after = send_request(&router, &prompt).await;
    assert!((1..before.matched).contains(&after.matched), "{after:?}");
    assert_eq!(after.matched, after.cached);
}

#[tokio::test]
async fn blocks_from_before_a_cache_reset_are_forgotten() {
    let fleet = small_fleet().await;
    let router = informed_router_over(&fleet).await;
    let prompt = long_prompt(0);
    send_request(&router, &prompt).await;
    caught_up(&router, &fleet).await;
    finds_all(&router, &prompt).await;
    reset_prefix_cache(&fleet.engines[0]).await;
    // As in vLLM the next step announces the reset, so another prompt comes first.
    send_request(&router, &long_prompt(1)).await;
    caught_up(&router, &fleet).await;
    let after = send_request(&router, &prompt).await;
    assert_eq!((after.matched, after.cached), (0, 0));
}

/// Resets the cache, repeatedly. A reset is refused while anything runs, and a request may still be on its way out when
/// its answer has come.
async fn reset_prefix_cache(engine: &MockEngine) {
    let url = engine.url();
    let client = harness::Client::new(url);
    eventually("the cache is reset", || async {
        let answer = client.post("/reset_prefix_cache", &json!({})).await.unwrap();
        answer.json().unwrap()["success"] == true
    })
    .await;
}
