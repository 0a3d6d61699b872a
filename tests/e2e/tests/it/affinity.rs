//! The index is true: what it says is held where is what the engine itself finds in its cache.

use harness::{Fleet, TestRouter, eventually_ok};
use mock_engine::MockConfig;
use serde_json::{Value, json};

use crate::{fast, fast_fleet, long_prompt, router_over};

/// Sends a prompt and gives: the worker, the tokens the index had matched there, the tokens the engine found cached.
async fn ask(router: &TestRouter, prompt: &str) -> (String, u64, u64) {
    let body = json!({ "model": "mock", "prompt": prompt, "max_tokens": 2 });
    let answer = router.client.post("/v1/completions", &body).await.unwrap();
    let usage = answer.json().unwrap();
    let cached = usage["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap_or(0);
    let matched = answer.header("x-conductor-matched-tokens").parse().unwrap_or(0);
    (answer.header("x-conductor-worker").to_owned(), matched, cached)
}

/// Waits until the index matches as much of the prompt as `enough` says, then checks it against the engine.
async fn index_agrees(router: &TestRouter, prompt: &str, enough: impl Fn(u64) -> bool) -> String {
    let what = "the index and the engine agree";
    eventually_ok(what, || async {
        let (worker, matched, cached) = ask(router, prompt).await;
        // The engine always recomputes the last token, so a prompt that ends on a block's end shows one block less.
        let block = MockConfig::default().block_size as u64;
        if enough(matched) && matched.abs_diff(cached) <= block {
            Ok(worker)
        } else {
            Err((worker, matched, cached))
        }
    })
    .await
}

/// A cache-aware router that follows all its feeds.
async fn informed_router_over(fleet: &Fleet) -> TestRouter {
    let router = router_over(fleet, "cache-aware").await;
    let is_live = |feed: &Value| feed["state"] == "Live";
    router
        .admin_shows("/admin/feeds", "all feeds are live", |page| {
            page["feeds"]
                .as_array()
                .is_some_and(|feeds| feeds.iter().all(is_live))
        })
        .await;
    router
}

/// Events that all feeds have delivered.
fn events(page: &Value) -> u64 {
    let feeds = page["feeds"].as_array().into_iter().flatten();
    feeds.filter_map(|feed| feed["events"].as_u64()).sum()
}

#[tokio::test]
async fn a_prompt_goes_back_to_the_worker_that_holds_its_prefix() {
    let fleet = fast_fleet(4).await;
    let router = informed_router_over(&fleet).await;
    for number in 0..8 {
        let prompt = long_prompt(number);
        let known = events(&router.admin("/admin/feeds").await.unwrap());
        let (first, ..) = ask(&router, &prompt).await;
        // Asked again before its events have come, it may go anywhere.
        router
            .admin_shows("/admin/feeds", "the events have come", |page| {
                events(page) > known
            })
            .await;
        let again = index_agrees(&router, &prompt, |matched| matched > 100).await;
        assert_eq!(again, first, "prompt {number}");
    }
}

#[tokio::test]
async fn a_router_that_starts_late_learns_what_is_cached_by_replay() {
    let fleet = fast_fleet(2).await;
    let prompt = long_prompt(1);
    {
        let router = informed_router_over(&fleet).await;
        ask(&router, &prompt).await;
    }
    let late = informed_router_over(&fleet).await;
    index_agrees(&late, &prompt, |matched| matched > 100).await;
}

#[tokio::test]
async fn evictions_and_resets_are_reflected() {
    let fleet = Fleet::start(1, |number, config| {
        fast(number, config);
        config.cache_blocks = 64;
    });
    let fleet = fleet.await.unwrap();
    let router = informed_router_over(&fleet).await;
    let prompt = long_prompt(0);
    ask(&router, &prompt).await;
    index_agrees(&router, &prompt, |matched| matched > 100).await;
    for number in 1..8 {
        ask(&router, &long_prompt(number)).await;
    }
    let engine = harness::Client::new(fleet.engines[0].url());
    eventually_ok("the evicted prefix is forgotten", || async {
        let (_, matched, cached) = ask(&router, &prompt).await;
        // Asking stores it anew, so push it out again before the next look.
        for number in 1..8 {
            ask(&router, &long_prompt(number)).await;
        }
        if matched == cached {
            Ok(())
        } else {
            Err((matched, cached))
        }
    })
    .await;

    ask(&router, &prompt).await;
    index_agrees(&router, &prompt, |matched| matched > 100).await;
    engine.post("/reset_prefix_cache", &json!({})).await.unwrap();
    // As in vLLM the reset is announced with the next step, so another prompt comes first.
    ask(&router, &long_prompt(20)).await;
    let (_, matched, cached) = eventually_ok("the reset is known", || async {
        let seen = ask(&router, &long_prompt(21)).await;
        if seen.1 <= seen.2 + 16 {
            Ok(seen)
        } else {
            Err(seen)
        }
    })
    .await;
    assert!(matched.abs_diff(cached) <= 16, "{matched} {cached}");
}
