//! vLLM's `MooncakeConnector`, both legs at once.

use std::time::Instant;

use http::Method;
use mock_engine::{MockConfig, MockEngine, PdDialect};
use serde_json::{Value, json};

use super::{
    ABORT, ENDLESS, PATH, Pair, StoppedClock, alone, background, body, brief, cached, check_failed, pair,
    pair_of, prompt, scaled, send, slow_prefill, text_of, with,
};
use crate::client::{Reply, open_url, whole};
use crate::{capture, eventually};

/// Recorded answer of a bootstrap server.
const RECORDED: &str = r#"{"0": {"engine_id": "d225ae2c-f85d-48d2-870e-a1b0d858abc7",
    "worker_addr": {"0": {"0": "tcp://127.0.0.1:40583"}}}}"#;

async fn mooncake() -> Pair {
    pair(PdDialect::Mooncake).await
}

async fn query(engine: &MockEngine) -> Value {
    let url = format!("{}/query", engine.bootstrap().expect("a bootstrap server"));
    let answer = open_url(Method::GET, &url, &[], "").await.expect("an answer");
    whole(answer).await.json()
}

fn prefill(request: &Value, transfer: &str) -> Value {
    let params = json!({"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": transfer});
    let members = json!({"max_tokens": 1, "stream": false, "kv_transfer_params": params});
    with(request.clone(), members)
}

fn decode(p: &MockEngine, request: &Value, transfer: &str) -> Value {
    let params = json!({
        "do_remote_decode": false, "do_remote_prefill": true, "transfer_id": transfer,
        "remote_bootstrap_addr": p.bootstrap(), "remote_engine_id": p.engine_ids()[0],
    });
    with(request.clone(), json!({"kv_transfer_params": params}))
}

/// Returns a decode leg with one parameter changed, or taken out.
fn spoilt(p: &MockEngine, name: &str, value: Option<&str>) -> Value {
    let mut leg = decode(p, &body(&prompt(1)), "t");
    let params = leg["kv_transfer_params"].as_object_mut().expect("an object");
    match value {
        Some(value) => params.insert(name.to_owned(), value.into()),
        None => params.remove(name),
    };
    leg
}

async fn ranked(engine: &MockEngine, rank: &str, body: &Value) -> Reply {
    let (url, headers) = (
        format!("{}{PATH}", engine.url()),
        [("x-data-parallel-rank", rank)],
    );
    let answer = open_url(Method::POST, &url, &headers, body.to_string()).await;
    whole(answer.expect("an answer")).await
}

#[tokio::test]
async fn the_directory_is_as_recorded_and_new_after_a_restart() {
    if let Some(text) = capture("pd/mooncake.requests.jsonl") {
        let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("json");
        assert_eq!(
            first["response"],
            serde_json::from_str::<Value>(RECORDED).expect("json")
        );
    }
    let pair = mooncake().await;
    let mut expected: Value = serde_json::from_str(RECORDED).expect("json");
    let before = pair.p.engine_ids();
    expected["0"]["engine_id"] = before[0].clone().into();
    expected["0"]["worker_addr"]["0"]["0"] = format!("tcp://{}", pair.p.http_addr()).into();
    assert_eq!(query(&pair.p).await, expected);
    pair.p.faults().restart(None).await.expect("an engine");
    expected["0"]["engine_id"] = pair.p.engine_ids()[0].clone().into();
    assert_eq!(query(&pair.p).await, expected);
    assert_ne!(before, pair.p.engine_ids());
    assert_eq!(pair.d.bootstrap(), None);
}

#[tokio::test]
async fn either_leg_may_come_first() {
    let pair = mooncake().await;
    let request = body(&prompt(1));
    for (transfer, decode_first, hits) in [("a", true, 0), ("b", false, 8)] {
        let answers = if decode_first {
            let decode = background(&pair.d, &decode(&pair.p, &request, transfer));
            eventually("waiting", || pair.d.stats().transfers_waiting == 1).await;
            (
                send(&pair.p, &prefill(&request, transfer)).await,
                decode.reply().await,
            )
        } else {
            let prefill = send(&pair.p, &prefill(&request, transfer)).await;
            assert_eq!(pair.p.stats().pinned_blocks, 3);
            (prefill, send(&pair.d, &decode(&pair.p, &request, transfer)).await)
        };
        assert_eq!((cached(&answers.0), cached(&answers.1)), (hits, 10));
        assert_eq!(answers.0.json()["kv_transfer_params"], Value::Null);
        assert_eq!(text_of(&answers.1), alone(&prompt(1)).await);
        pair.idle().await;
    }
    assert_eq!((pair.p.stats().prefill_legs, pair.d.stats().decode_legs), (2, 2));
}

#[tokio::test]
async fn a_decode_alone_fails_and_a_prefill_alone_stays_pinned_until_the_timeout() {
    let request = body(&prompt(1));
    let lasting = mooncake().await;
    assert_eq!(send(&lasting.p, &prefill(&request, "b")).await.status, 200);
    assert_eq!(lasting.p.stats().pinned_blocks, 3);
    let pair = pair_of(PdDialect::Mooncake, brief).await;
    let begun = Instant::now();
    check_failed(&send(&pair.d, &decode(&pair.p, &request, "a")).await);
    assert!(begun.elapsed() >= scaled(ABORT));
    let begun = Instant::now();
    assert_eq!(send(&pair.p, &prefill(&request, "b")).await.status, 200);
    pair.idle().await;
    assert!(begun.elapsed() >= scaled(ABORT));
}

#[tokio::test]
async fn a_wrong_engine_or_a_bootstrap_server_that_is_down_fails_soon() {
    let pair = mooncake().await;
    let request = body(&prompt(1));
    let unknown = spoilt(&pair.p, "remote_engine_id", Some("nope"));
    let nowhere = spoilt(&pair.p, "remote_bootstrap_addr", Some("http://127.0.0.1:9"));
    let restarted = decode(&pair.p, &request, "t");
    pair.p.faults().restart(None).await.expect("an engine");
    for leg in [unknown, nowhere, restarted] {
        let begun = Instant::now();
        check_failed(&send(&pair.d, &leg).await);
        assert!(begun.elapsed() >= scaled(0.7));
    }
    pair.p.faults().bootstrap_down(true).await.expect("an engine");
    check_failed(&send(&pair.d, &decode(&pair.p, &request, "t")).await);
    assert_eq!(send(&pair.p, &request).await.status, 200);
    pair.p.faults().bootstrap_down(false).await.expect("an engine");
    assert_eq!(send(&pair.p, &prefill(&request, "u")).await.status, 200);
    assert_eq!(send(&pair.d, &decode(&pair.p, &request, "u")).await.status, 200);
    pair.idle().await;
}

#[tokio::test]
async fn a_decode_without_a_transfer_id_hangs_and_keeps_its_blocks() {
    let pair = pair_of(PdDialect::Mooncake, brief).await;
    let hangs = background(&pair.d, &spoilt(&pair.p, "transfer_id", None));
    eventually("waiting", || pair.d.stats().transfers_waiting == 1).await;
    check_failed(&send(&pair.d, &decode(&pair.p, &body(&prompt(1)), "never")).await);
    assert!(!hangs.is_over());
    hangs.leave();
    assert_eq!(send(&pair.d, &body(&prompt(2))).await.status, 200);
    assert_eq!(
        (pair.d.stats().transfers_waiting, pair.d.stats().blocks_used),
        (1, 3)
    );
}

#[tokio::test]
async fn a_first_token_that_stops_is_not_handed_over() {
    let pair = mooncake().await;
    let impatient = pair.impatient_decode().await;
    pair.p.faults().stop_at_first_token(true);
    let request = json!({"prompt": prompt(1), "max_tokens": 3});
    let stops = with(request.clone(), json!({"stop": ["x"], "ignore_eos": true}));
    for (transfer, spoilt) in [("eos", &request), ("stop", &stops)] {
        let first = send(&pair.p, &prefill(spoilt, transfer)).await.json();
        assert_eq!(first["choices"][0]["finish_reason"], "stop");
        assert_eq!(pair.p.stats().pinned_blocks, 0);
        check_failed(&send(&impatient, &decode(&pair.p, &request, transfer)).await);
    }
    let guarded = with(request.clone(), json!({"ignore_eos": true, "stop": []}));
    assert_eq!(
        send(&pair.p, &prefill(&guarded, "ok")).await.json()["choices"][0]["finish_reason"],
        "length"
    );
    assert_eq!(send(&pair.d, &decode(&pair.p, &request, "ok")).await.status, 200);
    pair.idle().await;
}

/// Returns `true` once the prefill is computed and the decode waits for it.
fn both_at_it(pair: &Pair) -> bool {
    pair.p.stats().running == 1 && pair.d.stats().transfers_waiting == 1
}

#[tokio::test]
async fn an_aborted_prefill_frees_itself_at_once_and_the_decode_only_at_the_timeout() {
    let pair = pair_of(PdDialect::Mooncake, slow_prefill).await;
    let clock = StoppedClock::new();
    let request = body(&prompt(1));
    let legs = [
        background(&pair.p, &prefill(&request, "t")),
        background(&pair.d, &decode(&pair.p, &request, "t")),
    ];
    clock.eventually("both at it", || both_at_it(&pair)).await;
    legs.into_iter().for_each(super::Leg::leave);
    let both = || (pair.p.stats().abandoned, pair.d.stats().abandoned) == (1, 1);
    clock.eventually("both have left", both).await;
    // The end of the step.
    clock.advance(4.0).await;
    clock
        .eventually("the prefill is free", || pair.p.stats().cancelled == 1)
        .await;
    assert!(pair.p.stats().is_idle());
    clock.advance(0.9 * ENDLESS).await;
    clock.pass_real_time().await;
    assert_eq!(pair.d.stats().blocks_used, 3);
    clock
        .advance_until("idle", 0.002 * ENDLESS, || pair.is_idle())
        .await;
    assert_eq!((pair.d.stats().cancelled, pair.d.stats().failed), (1, 0));
}

#[tokio::test]
async fn an_aborted_decode_is_free_as_soon_as_its_prefill_is_done() {
    let pair = pair_of(PdDialect::Mooncake, slow_prefill).await;
    let clock = StoppedClock::new();
    let request = body(&prompt(1));
    let prefill = background(&pair.p, &prefill(&request, "t"));
    let decode = background(&pair.d, &decode(&pair.p, &request, "t"));
    clock.eventually("both at it", || both_at_it(&pair)).await;
    decode.leave();
    clock
        .eventually("the decode has left", || pair.d.stats().abandoned == 1)
        .await;
    clock.advance(40.0).await;
    clock
        .eventually("computed", || pair.p.stats().completed == 1)
        .await;
    assert_eq!(prefill.reply().await.status, 200);
    // The transfer takes less than a millisecond.
    clock.advance_until("idle", 0.2, || pair.is_idle()).await;
    assert_eq!(pair.d.stats().cancelled, 1);
}

#[tokio::test]
async fn a_prompt_too_long_is_refused_on_both_legs_and_frees_the_prefill() {
    let pair = pair_of(PdDialect::Mooncake, |config: &mut MockConfig| {
        config.max_model_len = Some(12)
    })
    .await;
    // The prefill leg requests one token, which fits.
    let request = body(&prompt(1));
    let begun = Instant::now();
    assert_eq!(send(&pair.p, &prefill(&request, "t")).await.status, 200);
    assert_eq!(send(&pair.d, &decode(&pair.p, &request, "t")).await.status, 400);
    pair.idle().await;
    assert!(begun.elapsed() < scaled(ABORT));
    let long = body(&[1; 12]);
    assert_eq!(send(&pair.p, &prefill(&long, "u")).await.status, 400);
    assert_eq!(send(&pair.d, &decode(&pair.p, &long, "u")).await.status, 400);
}

#[tokio::test]
async fn a_decode_that_leaves_the_queue_frees_the_prefill_and_one_that_is_refused_does_not() {
    let pair = pair_of(PdDialect::Mooncake, |config: &mut MockConfig| {
        (config.cache_blocks, config.max_waiting) = (4, 1);
    })
    .await;
    let request = body(&prompt(1));
    // Hangs, with all the blocks there are.
    let _hangs = background(&pair.d, &spoilt(&pair.p, "transfer_id", None));
    eventually("full", || pair.d.stats().transfers_waiting == 1).await;
    let queued = background(&pair.d, &decode(&pair.p, &request, "t"));
    eventually("queued", || pair.d.stats().waiting == 2).await;
    assert_eq!(send(&pair.p, &prefill(&request, "t")).await.status, 200);
    assert_eq!(send(&pair.d, &decode(&pair.p, &request, "t")).await.status, 503);
    assert_eq!(pair.p.stats().pinned_blocks, 3);
    let begun = Instant::now();
    queued.leave();
    eventually("free", || pair.p.stats().is_idle()).await;
    assert!(begun.elapsed() < scaled(ABORT) / 2);
}

#[tokio::test]
async fn a_transfer_is_there_once() {
    let pair = mooncake().await;
    let impatient = pair.impatient_decode().await;
    let request = body(&prompt(1));
    send(&pair.p, &prefill(&request, "t")).await;
    assert_eq!(send(&pair.d, &decode(&pair.p, &request, "t")).await.status, 200);
    check_failed(&send(&impatient, &decode(&pair.p, &request, "t")).await);
}

#[tokio::test]
async fn several_prompts_fail_and_stay_pinned_for_good() {
    let pair = pair_of(PdDialect::Mooncake, brief).await;
    let batch = with(body(&prompt(1)), json!({"prompt": [prompt(1), prompt(2)]}));
    assert_eq!(send(&pair.p, &prefill(&batch, "t")).await.status, 200);
    check_failed(&send(&pair.d, &decode(&pair.p, &batch, "t")).await);
    // Longer than anything else is kept.
    check_failed(&send(&pair.d, &decode(&pair.p, &body(&prompt(1)), "never")).await);
    assert_eq!(pair.p.stats().pinned_blocks, 6);
    pair.p.faults().restart(None).await.expect("an engine");
    assert!(pair.p.stats().is_idle());
}

#[tokio::test]
async fn a_rank_is_an_engine_of_its_own() {
    let pair = pair_of(PdDialect::Mooncake, |config: &mut MockConfig| config.dp_ranks = 2).await;
    let (request, impatient) = (body(&prompt(1)), pair.impatient_decode().await);
    let beyond = ranked(&pair.p, "2", &prefill(&request, "t")).await;
    assert_eq!(beyond.status, 400);
    let message = beyond.json()["error"]["message"].clone();
    assert_eq!(message, "data_parallel_rank 2 is out of range [0, 2).");
    let directory = query(&pair.p).await;
    assert_eq!(directory["1"]["engine_id"], pair.p.engine_ids()[1]);
    assert_eq!(ranked(&pair.p, "1", &prefill(&request, "t")).await.status, 200);
    let mut leg = decode(&pair.p, &request, "t");
    leg["kv_transfer_params"]["remote_engine_id"] = directory["1"]["engine_id"].clone();
    assert_eq!(send(&pair.d, &leg).await.status, 200);
    assert_eq!(ranked(&pair.p, "1", &prefill(&request, "u")).await.status, 200);
    check_failed(&send(&impatient, &decode(&pair.p, &request, "u")).await);
}
