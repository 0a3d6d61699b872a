//! Cache knowledge that is missing: `/status` reports it with its cause and cure, while it lasts.

use std::time::Duration;

use harness::{Fleet, TestRouter, eventually_ok, route_all};
use serde_json::Value;

use crate::{answered, fast, fast_fleet, router_with};

/// Waits until the pool's warnings have these causes, and gives them.
async fn warnings(router: &TestRouter, causes: &[&str]) -> Vec<Value> {
    eventually_ok(&format!("warnings are {causes:?}"), || async {
        let page = router
            .admin("/status")
            .await
            .map_err(|error| format!("{error:#}"))?;
        let warnings = page["pools"][0]["warnings"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found: Vec<&str> = warnings
            .iter()
            .filter_map(|warning| warning["cause"].as_str())
            .collect();
        if found == causes {
            Ok(warnings)
        } else {
            Err(page.to_string())
        }
    })
    .await
}

async fn silent_fleet() -> Fleet {
    Fleet::start(1, |number, config| {
        fast(number, config);
        config.publish_events = false;
    })
    .await
    .unwrap()
}

fn without_feeds(fleet: &Fleet, policy: &str) -> String {
    let workers = fleet.workers_toml().replace("kv-", "#kv-");
    format!("{workers}{}", route_all(policy))
}

#[tokio::test]
async fn a_cache_aware_route_over_workers_without_kv_events_reports_it() {
    let fleet = silent_fleet().await;
    let router = TestRouter::start(&without_feeds(&fleet, "cache-aware"))
        .await
        .unwrap();
    let found = warnings(&router, &["no-kv-events"]).await;
    let message = found[0]["message"].as_str().unwrap();
    assert!(
        message.contains("(w0)") && found[0]["fix"].as_str().unwrap().contains("kv-events"),
        "{message}"
    );
    let feeds = router.admin("/admin/feeds").await.unwrap();
    assert!(feeds["targets"][0]["reason"].is_string(), "{feeds}");
    assert!(feeds["targets"][0]["next_try_s"].is_number(), "{feeds}");
}

#[tokio::test]
async fn a_route_that_does_not_look_at_caches_lacks_nothing() {
    let fleet = silent_fleet().await;
    let router = TestRouter::start(&without_feeds(&fleet, "round-robin"))
        .await
        .unwrap();
    router
        .admin_shows("/admin/feeds", "the worker has answered", |page| {
            page["asked"][0]["state"] == "none"
        })
        .await;
    warnings(&router, &[]).await;
}

#[tokio::test]
async fn prompts_whose_tokenizer_times_out_are_reported() {
    let fleet = fast_fleet(1).await;
    let pool = "[pools.chat]\ntokenize-timeout = \"50ms\"\n";
    let router = router_with(pool, &fleet, "cache-aware").await;
    fleet.engines[0]
        .faults()
        .slow_tokenize(Duration::from_secs(3_600));
    answered(&router).await;
    let found = warnings(&router, &["tokenize-timeouts"]).await;
    assert_eq!(found[0]["count"], 1, "{found:?}");
    let message = found[0]["message"].as_str().unwrap();
    assert!(
        message.contains("1 of 1") && message.contains("`mock`"),
        "{message}"
    );
    assert!(!message.contains("hi\""), "no prompt: {message}");
}

#[tokio::test]
async fn a_feed_reports_why_it_is_not_live() {
    let fleet = fast_fleet(1).await;
    let nowhere = harness::refused_address().unwrap();
    let workers = fleet
        .workers_toml()
        .replace(fleet.engines[0].kv_events(), &format!("tcp://{nowhere}"));
    let router = TestRouter::start(&format!("{workers}{}", route_all("cache-aware")))
        .await
        .unwrap();
    let page = router
        .admin_shows("/admin/feeds", "the feed is listed", |page| {
            page["feeds"][0]["state"] == "connecting"
        })
        .await;
    let feed = &page["feeds"][0];
    assert!(
        feed["reason"].as_str().unwrap().contains("never connected"),
        "{feed}"
    );
    assert!(feed["state_for_s"].is_number(), "{feed}");
}
