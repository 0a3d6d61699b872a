//! A shared store of blocks.

use mock_engine::{MockConfig, PdDialect};
use serde_json::{Value, json};

use super::{alone, body, cached, pair, pair_of, prompt, send, text_of, with};
use crate::eventually;

fn one_token(request: &Value) -> Value {
    with(request.clone(), json!({"max_tokens": 1}))
}

#[tokio::test]
async fn a_decode_finds_what_a_prefill_put_in() {
    let pair = pair_of(PdDialect::Store, |config: &mut MockConfig| {
        config.cost.prefill_token_ms = 10_000.0
    })
    .await;
    let request = body(&prompt(1));
    assert_eq!(send(&pair.d, &one_token(&body(&prompt(2)))).await.status, 200);
    assert_eq!(
        send(&pair.p, &one_token(&request)).await.json()["kv_transfer_params"],
        Value::Null
    );
    eventually("in the store", || pair.p.stats().is_idle()).await;
    let answer = send(&pair.d, &request).await;
    assert_eq!((text_of(&answer), cached(&answer)), (alone(&prompt(1)).await, 8));
    // The transferred blocks are announced and found again.
    assert_eq!(pair.d.stats().cached_tokens, 0);
    assert_eq!(cached(&send(&pair.d, &request).await), 8);
    assert_eq!(pair.d.stats().cached_tokens, 8);
    pair.idle().await;
}

#[tokio::test]
async fn batches_are_found_prompt_by_prompt() {
    let pair = pair(PdDialect::Store).await;
    let batch = with(body(&prompt(1)), json!({"prompt": [prompt(1), prompt(2)]}));
    assert_eq!(send(&pair.p, &one_token(&batch)).await.status, 200);
    eventually("in the store", || pair.p.stats().is_idle()).await;
    assert_eq!(cached(&send(&pair.d, &batch).await), 16);
}

#[tokio::test]
async fn other_salts_find_nothing() {
    let pair = pair(PdDialect::Store).await;
    let request = body(&prompt(1));
    send(&pair.p, &with(one_token(&request), json!({"cache_salt": "a"}))).await;
    eventually("in the store", || pair.p.stats().is_idle()).await;
    assert_eq!(cached(&send(&pair.d, &request).await), 0);
    assert_eq!(
        cached(&send(&pair.d, &with(request, json!({"cache_salt": "a"}))).await),
        8
    );
}
