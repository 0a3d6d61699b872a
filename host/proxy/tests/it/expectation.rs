//! Tests of the blocks expected in a worker's cache after a request.

use std::time::Duration;

use kv_index::Holder;
use proxy::{AssumedCache, Expectation, ProbeSpec};
use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, StoredBlocks, Tier};

use crate::client::{post, send};
use crate::eventually;
use crate::policy::Scripted;
use crate::router::{Router, router};
use crate::tokens::querying_worker;
use crate::worker::{Leaving, Worker, json};

const BODY: &str = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10]}"#;

/// Starts two workers `a` and `b`; every request goes to `a`.
async fn start(expectation: Expectation, policy: std::sync::Arc<Scripted>) -> (Router, [Worker; 2]) {
    let workers = [Worker::named("a").await, Worker::named("b").await];
    let router = router()
        .worker("a", &workers[0].url())
        .worker("b", &workers[1].url())
        .policy(policy)
        .with(querying_worker)
        .with(|builder| builder.expectation = expectation)
        .start()
        .await;
    (router, workers)
}

async fn send_prompt(router: &Router) {
    send(router.address, post("/v1/completions", BODY))
        .await
        .text()
        .await;
}

/// Stores a block of 4 tokens that is not part of the prompt, so that the index learns the block size.
fn report_block_size(router: &Router, worker: &str) {
    let stored = StoredBlocks {
        hashes: vec![EngineBlockHash(1)],
        parent: None,
        tokens: vec![0; 4],
        block_size: 4,
        tier: Tier::Device,
        lora: None,
        extra_keys: vec![],
        group: 0,
        attention: Attention::Full,
    };
    let holder = Holder {
        worker: router.id(worker),
        rank: DpRank(0),
    };
    router.index.apply(holder, &BlockEvent::Stored(stored));
    router.feeds.set(router.id(worker), true);
}

#[tokio::test]
async fn siblings_of_a_request_find_its_worker_before_any_event() {
    let policy = Scripted::first(&[], &["prefix.device-tokens"]);
    let until_confirmed = Duration::from_secs(2);
    let expectation = Expectation {
        until_confirmed,
        assumed: None,
    };
    let (router, _workers) = start(expectation, policy.clone()).await;
    report_block_size(&router, "a");
    report_block_size(&router, "b");
    send_prompt(&router).await;
    send_prompt(&router).await;
    assert_eq!(policy.shown(), [[0.0, 0.0], [8.0, 0.0]]);
    router.index.age_expected(&[router.id("a")]);
    router.index.age_expected(&[router.id("a")]);
    send_prompt(&router).await;
    assert_eq!(policy.shown()[2], [0.0, 0.0], "nothing came of it");
    let metric = |name: &str| router.metric(&format!("conductor_{name}{{pool=\"main\"}}"));
    assert_eq!(metric("index_queries_total"), 3.0);
    assert_eq!(metric("matched_prompt_tokens_count"), 3.0);
    assert_eq!(metric("matched_prompt_tokens_sum"), 8.0);
}

#[tokio::test]
async fn a_pool_may_assume_what_a_worker_without_events_has_cached() {
    let policy = Scripted::first(&[], &["prefix.any-tokens"]);
    let assumed = AssumedCache {
        tokens: 1_000,
        block_size: 2,
        lifetime: Duration::from_secs(60),
    };
    let expectation = Expectation {
        until_confirmed: Duration::ZERO,
        assumed: Some(assumed),
    };
    let (router, _workers) = start(expectation, policy.clone()).await;
    send_prompt(&router).await;
    send_prompt(&router).await;
    assert_eq!(policy.shown(), [[0.0, 0.0], [10.0, 0.0]]);
    // Once the worker has events, they count instead.
    router.feeds.set(router.id("b"), true);
    send_prompt(&router).await;
    assert_eq!(policy.shown()[2], [10.0, 0.0]);
}

#[tokio::test]
async fn nothing_is_expected_where_nothing_may_be() {
    let policy = Scripted::first(&[], &["prefix.any-tokens"]);
    let (router, _workers) = start(Expectation::default(), policy.clone()).await;
    report_block_size(&router, "a");
    send_prompt(&router).await;
    send_prompt(&router).await;
    assert_eq!(policy.shown()[1][0], 0.0);
    assert!(policy.shown()[1][1].is_nan(), "no events, nothing assumed");
    assert_eq!(router.index.stats().expected, 0);
}

#[tokio::test]
async fn a_worker_that_refuses_a_prompt_is_not_expected_to_hold_it() {
    for (status, attempts, expected) in [
        (429, 3, 0.0),
        (503, 3, 0.0),
        (429, 1, 0.0),
        (400, 1, 0.0),
        (500, 3, 10.0),
    ] {
        let policy = Scripted::first(&[], &["prefix.any-tokens"]);
        let workers = [
            Worker::start(move |_| async move { json(status, "{}") }).await,
            Worker::named("b").await,
        ];
        let assumed = AssumedCache {
            tokens: 1_000,
            block_size: 2,
            lifetime: Duration::from_secs(60),
        };
        let router = router()
            .worker("a", &workers[0].url())
            .worker("b", &workers[1].url())
            .policy(policy.clone())
            .with(querying_worker)
            .with(|builder| {
                builder.limits.attempts = attempts;
                builder.expectation = Expectation {
                    until_confirmed: Duration::ZERO,
                    assumed: Some(assumed),
                };
            })
            .start()
            .await;
        send_prompt(&router).await;
        send_prompt(&router).await;
        let shown = policy.shown();
        let second = shown.iter().rfind(|numbers| numbers.len() == 2).unwrap();
        assert_eq!(second[0], expected, "{status}: {shown:?}");
    }
}

/// Returns whether blocks may be expected at the worker, as the index's maintenance reads it.
fn is_listed(router: &Router, worker: &str) -> bool {
    let id = router.id(worker);
    router
        .proxy
        .take_expectations()
        .iter()
        .any(|(worker, _)| *worker == id)
}

#[tokio::test]
async fn expected_blocks_of_a_worker_that_refuses_a_request_are_dropped_once() {
    let (leaving, well) = (Leaving::start().await, Worker::named("b").await);
    let router = router()
        .worker("a", &leaving.url)
        .worker("b", &well.url())
        .policy(Scripted::first(&[], &[]))
        .start()
        .await;
    assert!(is_listed(&router, "a"));
    leaving.leave().await;
    send_prompt(&router).await;
    assert_eq!(well.received().len(), 1);
    assert!(!is_listed(&router, "a"), "its cache is gone");
    assert!(is_listed(&router, "a"), "it may come back");
    assert!(is_listed(&router, "b"));
}

#[tokio::test]
async fn a_probe_that_is_refused_drops_them_too() {
    let leaving = Leaving::start().await;
    let router = router()
        .worker("a", &leaving.url)
        .with(|builder| {
            builder.health.probe = Some(ProbeSpec {
                interval: Duration::from_millis(20),
                ..ProbeSpec::default()
            });
        })
        .start_at_once()
        .await;
    assert!(is_listed(&router, "a"), "it closes connections, but listens");
    leaving.leave().await;
    eventually("a probe is refused", || !is_listed(&router, "a")).await;
}
