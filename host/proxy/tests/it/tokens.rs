//! Tests of prompt tokens: their source, and the matches that a policy sees with them.

use std::sync::Arc;
use std::time::Duration;

use kv_index::Holder;
use proxy::TokenSource;
use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, StoredBlocks, Tier};

use crate::client::{chat, post, send};
use crate::policy::{Scripted, route};
use crate::router::{Builder, Router, router};
use crate::worker::{Worker, json, streaming, tokenizing};

const COLUMNS: [&str; 4] = [
    "prefix.device-tokens",
    "prefix.host-tokens",
    "prefix.any-tokens",
    "cache.blocks",
];

/// Stores the first two blocks of 1, 2, 3, ... at the worker, with block size 4.
pub(crate) fn hold_two_blocks(router: &Router, worker: &str) {
    let stored = StoredBlocks {
        hashes: vec![EngineBlockHash(11), EngineBlockHash(12)],
        parent: None,
        tokens: (1..=8).collect(),
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
}

pub(crate) fn querying_worker(builder: &mut Builder) {
    builder.tokens = TokenSource::Worker {
        timeout: Duration::from_secs(10),
    };
}

/// Starts a router before one worker, which it queries for tokens.
async fn querying(worker: &Worker, policy: Arc<Scripted>) -> Router {
    router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(querying_worker)
        .start()
        .await
}

#[tokio::test]
async fn a_prompt_of_token_ids_is_matched_without_a_query() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let policy = Scripted::first(&["request.prompt-tokens", "prefix.best-tokens"], &COLUMNS);
    let router = router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .policy(policy.clone())
        .with(querying_worker)
        .start()
        .await;
    hold_two_blocks(&router, "b");
    router.feeds.set(router.id("b"), true);
    let body = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10]}"#;
    send(router.address, post("/v1/completions", body))
        .await
        .text()
        .await;
    let numbers = &policy.shown()[0];
    assert_eq!(numbers[..2], [10.0, 8.0]);
    assert!(
        numbers[2..6].iter().all(|unknown| unknown.is_nan()),
        "no live feed: {numbers:?}"
    );
    assert_eq!(numbers[6..], [8.0, 8.0, 8.0, 2.0]);
    assert_eq!([a.paths(), b.paths()].concat(), ["/v1/completions"]);
    assert_eq!(router.pool_metric("prompt_tokens_total"), 10.0);
}

/// Stores two blocks of size 4 at a worker whose feed is not live. `columns` decides whether the index is queried at
/// once.
async fn check_feed_not_live(columns: &[&str]) {
    let (worker, mut pens) = streaming().await;
    let policy = Scripted::seeing(&["request.prompt-tokens"], columns, |input| {
        assert_eq!(input.queries.matched(Tier::Device), [0]);
        assert_eq!(input.queries.holders(1), 0);
        Ok(route(0))
    });
    let router = querying(&worker, policy).await;
    hold_two_blocks(&router, "a");
    // Of an answer that is no stream, the prompt is taken for computed after the expected time.
    let body = r#"{"model":"m","stream":true,"prompt":[1,2,3,4,5,6,7,8,9,10]}"#;
    let answer = send(router.address, post("/v1/completions", body)).await;
    let _pen = pens.recv().await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-conductor-matched-tokens"), None);
    assert_eq!(router.worker("a").load().read().prefill_tokens, 10);
    assert_eq!(router.pool_metric("matched_tokens_total"), 0.0);
    assert_eq!(router.fallbacks("scripted"), [0.0; 3]);
}

#[tokio::test]
async fn blocks_behind_a_feed_that_is_not_live_count_for_no_worker() {
    check_feed_not_live(&COLUMNS).await;
    check_feed_not_live(&["load.requests"]).await;
}

#[tokio::test]
async fn a_policy_that_queries_by_itself_gets_what_the_booking_counts() {
    let worker = Worker::named("a").await;
    let policy = Scripted::seeing(&["request.prompt-tokens"], &[], |input| {
        assert_eq!(input.queries.matched(Tier::Device), [8]);
        assert_eq!([input.queries.holders(8), input.queries.holders(9)], [1, 0]);
        Ok(route(0))
    });
    let router = querying(&worker, policy).await;
    hold_two_blocks(&router, "a");
    router.feeds.set(router.id("a"), true);
    let body = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10]}"#;
    let answer = send(router.address, post("/v1/completions", body)).await;
    assert_eq!(answer.header("x-conductor-matched-tokens"), Some("8"));
}

#[tokio::test]
async fn prompts_that_begin_alike_have_equal_keys_without_a_question_to_the_index() {
    let worker = Worker::named("a").await;
    let policy = Scripted::first(
        &["prefix.key-64", "prefix.key-128", "prefix.key-16384"],
        &["load.requests"],
    );
    let router = querying(&worker, policy.clone()).await;
    let shared: Vec<u32> = (0..64).collect();
    for more in [vec![], vec![1; 80], vec![2; 80]] {
        let prompt = [&shared[..], &more].concat();
        let body = format!(r#"{{"model":"m","prompt":{prompt:?}}}"#);
        send(router.address, post("/v1/completions", body))
            .await
            .text()
            .await;
    }
    let [short, one, other] = &policy.shown()[..] else {
        panic!("three requests were sent");
    };
    assert_eq!((short[0], short[0]), (one[0], other[0]));
    assert_eq!((short[1], short[2]), (short[0], short[0]), "it ends there");
    assert!(one[1] != short[1] && one[1] != other[1] && one[1] != one[2]);
    assert!(short[0] > 0.0 && short[0].fract() == 0.0 && short[0] < (1_u64 << 53) as f64);
    assert_eq!(router.pool_metric("index_queries_total"), 0.0);
    let few = r#"{"model":"m","prompt":[1,2,3]}"#;
    send(router.address, post("/v1/completions", few))
        .await
        .text()
        .await;
    assert!(policy.shown()[3][..3].iter().all(|key| key.is_nan()));
}

#[tokio::test]
async fn a_chat_is_tokenized_by_a_worker() {
    let worker = tokenizing().await;
    let policy = Scripted::first(&[], &COLUMNS);
    let router = querying(&worker, policy.clone()).await;
    hold_two_blocks(&router, "a");
    router.feeds.set(router.id("a"), true);
    assert_eq!(send(router.address, chat()).await.text().await, "a");
    assert_eq!(policy.shown()[0], [8.0, 8.0, 8.0, 2.0]);
    assert_eq!(worker.paths(), ["/tokenize", "/v1/chat/completions"]);
    let query = &worker.received()[0];
    assert_eq!(
        query.body,
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(query.headers["content-type"], "application/json");
    assert_eq!(
        router.metric(r#"conductor_tokenized_total{pool="main",outcome="worker"}"#),
        1.0
    );
    assert_eq!(router.pool_metric("matched_tokens_total"), 8.0);
}

#[tokio::test]
async fn no_worker_is_queried_for_tokens_that_no_policy_wants() {
    let worker = tokenizing().await;
    let policy = Scripted::first(&[], &["load.requests"]);
    let router = querying(&worker, policy).await;
    send(router.address, chat()).await.text().await;
    assert_eq!(worker.paths(), ["/v1/chat/completions"]);
}

async fn check_unknown(worker: Worker, source: TokenSource, outcome: &str) {
    let policy = Scripted::first(&["request.prompt-tokens"], &COLUMNS);
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .with(|builder| builder.tokens = source)
        .start()
        .await;
    router.feeds.set(router.id("a"), true);
    assert_eq!(send(router.address, chat()).await.text().await, "a");
    let numbers = &policy.shown()[0];
    assert!(
        numbers[..4].iter().all(|unknown| unknown.is_nan()),
        "{outcome}: {numbers:?}"
    );
    assert_eq!(numbers[4], 0.0, "{outcome}");
    let count = router.metric(&format!(
        "conductor_tokenized_total{{pool=\"main\",outcome=\"{outcome}\"}}"
    ));
    assert_eq!(count, 1.0, "{outcome}");
}

#[tokio::test]
async fn a_request_is_served_without_tokens_when_they_cannot_be_had() {
    let soon = TokenSource::Worker {
        timeout: Duration::from_millis(30),
    };
    let late = TokenSource::Worker {
        timeout: Duration::from_secs(10),
    };
    let slow = Worker::start(|request| async move {
        if request.uri.path() == "/tokenize" {
            std::future::pending::<()>().await;
        }
        json(200, "a")
    })
    .await;
    check_unknown(slow, soon, "timeout").await;
    // The worker answers everything with `a`, which is not a tokenizer's response.
    check_unknown(Worker::named("a").await, late, "failed").await;
    check_unknown(Worker::named("a").await, TokenSource::Off, "off").await;
}

#[tokio::test]
async fn a_prompt_of_token_ids_has_the_limit_of_a_text() {
    let worker = Worker::named("a").await;
    let policy = Scripted::first(&["request.prompt-tokens"], &[]);
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .with(|builder| builder.models_spec.limits.longest = 300_000)
        .start()
        .await;
    // Longer than a list that is read at once.
    for (count, known, outcome) in [(100_000, true, "given"), (200_000, false, "too-long")] {
        let ids = vec!["1"; count].join(",");
        let body = format!(r#"{{"model":"m","prompt":[{ids}]}}"#);
        send(router.address, post("/v1/completions", body))
            .await
            .text()
            .await;
        let shown = policy.shown().last().unwrap()[0];
        assert_eq!(
            (shown == count as f64, shown.is_nan()),
            (known, !known),
            "{shown}"
        );
        let metric = format!(r#"conductor_tokenized_total{{pool="main",outcome="{outcome}"}}"#);
        assert_eq!(router.metric(&metric), 1.0);
    }
}

#[tokio::test]
async fn a_prompt_counts_once_however_often_its_request_is_sent() {
    let (busy, well) = (
        Worker::start(|_| async { json(503, "{}") }).await,
        Worker::named("b").await,
    );
    let router = router()
        .worker("a", &busy.url())
        .worker("b", &well.url())
        .policy(Scripted::first(&[], &COLUMNS))
        .with(querying_worker)
        .start()
        .await;
    hold_two_blocks(&router, "a");
    router.feeds.set(router.id("a"), true);
    router.feeds.set(router.id("b"), true);
    let body = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10]}"#;
    let answer = send(router.address, post("/v1/completions", body)).await;
    assert_eq!(answer.text().await, "b");
    assert_eq!(busy.received().len(), 1, "it was tried first");
    let metric = |name| router.pool_metric(name);
    assert_eq!(metric("prompt_tokens_total"), 10.0);
    assert_eq!(metric("best_match_tokens_total"), 8.0);
    assert_eq!(metric("matched_tokens_total"), 8.0);
    assert_eq!(metric("matched_prompt_tokens_count"), 1.0);
}
