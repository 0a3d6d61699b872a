//! vLLM's `NixlConnector`, one leg after the other.

use std::time::Instant;

use mock_engine::{MockConfig, PdDialect};
use serde_json::{Value, json};

use super::{
    LEASE, Pair, alone, background, body, brief, cached, check_failed, pair, pair_of, prompt, scaled, send,
    text_of, with,
};
use crate::client::post;
use crate::{capture, eventually};

/// Recorded answer to a prefill of 150 tokens in blocks of 32.
const RECORDED: &str = r#"{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[4, 5, 6, 7, 8]],
    "remote_engine_id": "54d68166-e550-41ba-b9a6-795c1c6de432",
    "remote_request_id": "cmpl-0a371307-817f-42da-a8fb-0007101c9a1e-0-b7fc91a3", "remote_host": "127.0.0.1",
    "remote_port": 5701, "tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": 150,
    "remote_blocks_expiry_time": null, "transfer_mode": "pull", "remote_prefill_cached_tokens": 0}"#;

fn prefill_params() -> Value {
    json!({"max_tokens": 1, "stream": false, "kv_transfer_params": {
        "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null, "remote_block_ids": null,
        "remote_host": null, "remote_port": null,
    }})
}

async fn nixl() -> Pair {
    pair(PdDialect::Nixl).await
}

/// Computes a prompt on the prefill engine and answers the parameters for the decode engine.
async fn prefilled(pair: &Pair, body: &Value) -> Value {
    let answer = send(&pair.p, &with(body.clone(), prefill_params())).await.json();
    answer["kv_transfer_params"].clone()
}

fn decode(body: &Value, params: Value) -> Value {
    with(body.clone(), json!({"kv_transfer_params": params}))
}

#[test]
fn the_fixture_is_the_recorded_answer() {
    let Some(text) = capture("pd/nixl.requests.jsonl") else {
        return;
    };
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("json");
    let recorded: Value = serde_json::from_str(RECORDED).expect("json");
    assert_eq!(first["response"]["kv_transfer_params"], recorded);
    assert_eq!(
        first["request"]["kv_transfer_params"],
        prefill_params()["kv_transfer_params"]
    );
}

#[tokio::test]
async fn a_prefill_reports_where_its_blocks_are_as_recorded() {
    let pair = pair_of(PdDialect::Nixl, |config: &mut MockConfig| config.block_size = 32).await;
    let prompt: Vec<u32> = (0..150).collect();
    let found = prefilled(&pair, &body(&prompt)).await;
    let mut expected: Value = serde_json::from_str(RECORDED).expect("json");
    let blocks = found["remote_block_ids"][0].as_array().expect("blocks").len();
    assert_eq!((blocks, pair.p.stats().pinned_blocks), (5, 5));
    let id = found["remote_request_id"].as_str().expect("an id");
    let suffix = id.strip_prefix("cmpl-my-req-1-0-").expect("the request's own id");
    assert_eq!(suffix.len(), 8);
    for name in ["remote_block_ids", "remote_request_id"] {
        expected[name] = found[name].clone();
    }
    expected["remote_port"] = pair.p.http_addr().port().into();
    expected["remote_engine_id"] = pair.p.engine_ids()[0].clone().into();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_decode_answers_as_one_engine_would_and_frees_the_prefill() {
    let pair = nixl().await;
    let request = body(&prompt(1));
    for hits in [0, 8] {
        let params = prefilled(&pair, &request).await;
        assert_eq!(params["remote_prefill_cached_tokens"], hits);
        let answer = send(&pair.d, &decode(&request, params)).await;
        assert_eq!(
            (text_of(&answer), cached(&answer)),
            (alone(&prompt(1)).await, hits)
        );
        assert_eq!(answer.json()["kv_transfer_params"], Value::Null);
        pair.idle().await;
    }
    // Two full blocks on either side, and on the decode side one that decoding filled.
    assert_eq!((pair.p.stats().blocks_held, pair.d.stats().blocks_held), (2, 3));
    assert_eq!((pair.p.stats().prefill_legs, pair.d.stats().decode_legs), (2, 2));
}

#[tokio::test]
async fn blocks_that_no_one_fetches_are_kept_for_the_lease() {
    let pair = pair_of(PdDialect::Nixl, brief).await;
    let begun = Instant::now();
    prefilled(&pair, &body(&prompt(1))).await;
    eventually("free", || pair.p.stats().is_idle()).await;
    assert!(begun.elapsed() >= scaled(LEASE));
}

#[tokio::test]
async fn a_decode_whose_prefill_is_gone_fails_after_a_while() {
    let pair = pair_of(PdDialect::Nixl, brief).await;
    let request = body(&prompt(1));
    let mut foreign = prefilled(&pair, &request).await;
    foreign["remote_engine_id"] = "nope".into();
    let restarted = prefilled(&pair, &request).await;
    pair.p.faults().restart(None).await.expect("an engine");
    let unreachable = prefilled(&pair, &request).await;
    assert_ne!(restarted["remote_engine_id"], unreachable["remote_engine_id"]);
    pair.p.faults().refuse_connections().await.expect("an engine");
    for params in [foreign, restarted, unreachable] {
        let begun = Instant::now();
        check_failed(&send(&pair.d, &decode(&request, params)).await);
        assert!(begun.elapsed() >= scaled(7.0));
    }
    assert_eq!(pair.d.stats().failed, 3);
    pair.idle().await;
}

#[tokio::test]
async fn a_stream_that_fails_reports_it_after_its_head() {
    let pair = nixl().await;
    let mut params = prefilled(&pair, &body(&prompt(1))).await;
    params["remote_engine_id"] = "nope".into();
    let request = with(body(&prompt(1)), json!({"stream": true}));
    let answer = send(&pair.d, &decode(&request, params)).await;
    assert_eq!((answer.status.as_u16(), answer.complete), (200, true));
    let chunks = answer.chunks();
    assert_eq!((chunks.len(), &chunks[0]["error"]["code"]), (1, &json!(500)));
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_decode_without_a_field_hangs_and_keeps_its_blocks() {
    let pair = nixl().await;
    let request = body(&prompt(1));
    let mut lacking = prefilled(&pair, &request).await;
    lacking
        .as_object_mut()
        .expect("an object")
        .remove("remote_request_id");
    let hangs = background(&pair.d, &decode(&request, lacking.clone()));
    eventually("waiting", || pair.d.stats().transfers_waiting == 1).await;
    // Another fails meanwhile, after the longest time that a transfer can take.
    let mut foreign = lacking.clone();
    foreign["remote_request_id"] = "x".into();
    foreign["remote_engine_id"] = "nope".into();
    check_failed(&send(&pair.d, &decode(&request, foreign)).await);
    assert!(!hangs.is_over());
    hangs.leave();
    assert_eq!(send(&pair.d, &body(&prompt(2))).await.status, 200);
    assert_eq!(
        (pair.d.stats().transfers_waiting, pair.d.stats().blocks_used),
        (1, 3)
    );
}

#[tokio::test]
async fn a_prefill_that_dies_while_it_is_read_fails_the_decode() {
    let pair = pair_of(PdDialect::Nixl, |config: &mut MockConfig| {
        let pd = config.pd.as_mut().expect("a half");
        pd.transfer_ms_per_1k_tokens = 1e9;
    })
    .await;
    let request = body(&prompt(1));
    let params = prefilled(&pair, &request).await;
    let decode = background(&pair.d, &decode(&request, params));
    eventually("reading", || pair.d.stats().transfers_waiting == 1).await;
    let begun = Instant::now();
    pair.p.faults().restart(None).await.expect("an engine");
    check_failed(&decode.reply().await);
    assert!(begun.elapsed() < scaled(1e4));
    pair.idle().await;
}

#[tokio::test]
async fn a_handshake_can_be_used_twice() {
    let pair = nixl().await;
    let request = body(&prompt(1));
    let params = prefilled(&pair, &request).await;
    for _ in 0..2 {
        let answer = send(&pair.d, &decode(&request, params.clone())).await;
        assert_eq!(text_of(&answer), alone(&prompt(1)).await);
    }
    pair.idle().await;
}

#[tokio::test]
async fn a_prefill_of_several_choices_keeps_both_sides_for_the_lease() {
    let (request, two) = (body(&prompt(1)), with(body(&prompt(1)), json!({"n": 2})));
    let lasting = nixl().await;
    prefilled(&lasting, &two).await;
    assert_eq!(lasting.p.stats().pinned_blocks, 6 - 2);
    let pair = pair_of(PdDialect::Nixl, brief).await;
    let begun = Instant::now();
    let params = prefilled(&pair, &two).await;
    let answer = send(&pair.d, &decode(&request, params)).await;
    assert_eq!(answer.status, 200);
    assert!(begun.elapsed() >= scaled(LEASE));
    pair.idle().await;
}

#[tokio::test]
async fn a_decode_of_several_choices_or_prompts_answers_as_without_a_split() {
    let pair = nixl().await;
    let request = body(&prompt(1));
    for members in [json!({"n": 2}), json!({"prompt": [prompt(1), prompt(2)]})] {
        let whole = with(request.clone(), members);
        let params = prefilled(&pair, &request).await;
        let answer = send(&pair.d, &decode(&whole, params)).await.json();
        let unsplit = send(&crate::start(crate::instant()).await, &whole).await.json();
        assert_eq!(answer["choices"], unsplit["choices"]);
        assert_eq!(answer["choices"].as_array().map(Vec::len), Some(2));
    }
    pair.idle().await;
}

#[tokio::test]
async fn a_batch_hands_over_one_prompt_only() {
    let pair = nixl().await;
    let batch = with(body(&prompt(1)), json!({"prompt": [prompt(1), prompt(2)]}));
    let params = prefilled(&pair, &batch).await;
    assert_eq!(params["remote_num_tokens"], 10);
    let answer = send(&pair.d, &decode(&body(&prompt(1)), params)).await;
    assert_eq!(answer.status, 200);
    eventually("one is left", || pair.p.stats().pinned_blocks == 3).await;
    let pair = pair_of(PdDialect::Nixl, brief).await;
    prefilled(&pair, &batch).await;
    pair.idle().await;
}

#[tokio::test]
async fn a_first_token_that_stops_is_handed_over_all_the_same() {
    let pair = nixl().await;
    pair.p.faults().stop_at_first_token(true);
    let request = json!({"prompt": prompt(1), "max_tokens": 3});
    let params = prefilled(&pair, &request).await;
    assert_eq!(params["remote_num_tokens"], 10);
    assert_eq!(
        text_of(&send(&pair.d, &decode(&request, params)).await),
        alone(&prompt(1)).await
    );
}

#[tokio::test]
async fn a_chat_is_handed_over_too() {
    let pair = nixl().await;
    let chat = json!({"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 3});
    let prefill = post(
        &pair.p,
        "/v1/chat/completions",
        &with(chat.clone(), prefill_params()),
    )
    .await
    .json();
    let params = prefill["kv_transfer_params"].clone();
    let answer = post(&pair.d, "/v1/chat/completions", &decode(&chat, params)).await;
    assert_eq!(answer.status, 200);
    pair.idle().await;
}
