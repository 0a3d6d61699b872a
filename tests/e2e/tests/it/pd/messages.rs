//! Anthropic's Messages between two engines: split as chats are, where the prefill leg can hold the request.

use bytes::Bytes;
use harness::{SplitFleet, TestRouter, route_all};
use http::{Method, StatusCode};
use mock_engine::{MockEngine, PdDialect};
use serde_json::{Value, json};

use super::reference;
use crate::{fast, long_prompt};

const MESSAGES: &str = "/v1/messages";

fn message(number: usize, stream: bool) -> Value {
    json!({
        "model": "mock", "stream": stream, "max_tokens": 8, "system": "Be brief.",
        "messages": [{"role": "user", "content": long_prompt(number)}],
    })
}

/// Returns the text of an answer, whole or streamed, and whether two engines made it.
async fn answer_of(client: &harness::Client, body: &Value) -> (String, bool) {
    let sent = client.stream(Method::POST, MESSAGES, &[], Bytes::from(body.to_string()));
    let answer = sent.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{body}: {}", answer.text());
    let is_split = !answer.header("x-conductor-prefill-worker").is_empty();
    if body["stream"] != true {
        let answer = answer.json().unwrap();
        assert_eq!(answer["usage"]["output_tokens"], 8, "{answer}");
        return (
            answer["content"][0]["text"].as_str().unwrap().to_owned(),
            is_split,
        );
    }
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(events.last().unwrap()["type"], "message_stop", "{text}");
    let deltas = events.iter().map(|event| &event["delta"]["text"]);
    (deltas.filter_map(Value::as_str).collect(), is_split)
}

/// Returns the `kv_transfer_params` of the last request that an engine received.
fn handshake(engine: &MockEngine) -> Value {
    let sent = engine.requests(MESSAGES).pop().unwrap();
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    body["kv_transfer_params"].clone()
}

async fn split(dialect: PdDialect) -> (SplitFleet, TestRouter) {
    let fleet = SplitFleet::start(dialect, (1, 1), |config| fast(0, config));
    let fleet = fleet.await.unwrap();
    let toml = fleet.pool_toml("chat", "") + &route_all("round-robin");
    let router = TestRouter::start(&toml).await.unwrap();
    (fleet, router)
}

#[tokio::test]
async fn a_nixl_pair_answers_messages_as_one_engine_does() {
    let (_engine, reference) = reference().await;
    let (fleet, router) = split(PdDialect::Nixl).await;
    for (number, stream) in [false, true].into_iter().enumerate() {
        for thinking in [false, true] {
            let mut body = message(2 * number + usize::from(thinking), stream);
            if thinking {
                // The prefill leg of nixl keeps the budget: one token is all that it makes.
                body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
            }
            let (one, _) = answer_of(&reference, &body).await;
            assert_eq!(answer_of(&router.client, &body).await, (one, true), "{body}");
            let (prefill, decode) = (handshake(&fleet.prefill[0]), handshake(&fleet.decode[0]));
            assert_eq!(prefill["do_remote_decode"], true, "{prefill}");
            assert_eq!(decode["do_remote_prefill"], true, "{decode}");
        }
    }
    assert_eq!(fleet.prefill[0].stats().prefill_legs, 4);
    assert_eq!(fleet.decode[0].stats().decode_legs, 4);
}

#[tokio::test]
async fn a_store_splits_messages_unless_they_have_a_budget_of_thinking() {
    let (_engine, reference) = reference().await;
    let (fleet, router) = split(PdDialect::Store).await;
    for (number, stream) in [false, true].into_iter().enumerate() {
        let mut body = message(2 * number, stream);
        let (one, _) = answer_of(&reference, &body).await;
        assert_eq!(answer_of(&router.client, &body).await, (one, true), "{body}");
        body = message(2 * number + 1, stream);
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        let (one, _) = answer_of(&reference, &body).await;
        let before = fleet.prefill[0].requests(MESSAGES).len();
        assert_eq!(answer_of(&router.client, &body).await, (one, false), "{body}");
        assert_eq!(fleet.prefill[0].requests(MESSAGES).len(), before);
    }
}

#[tokio::test]
async fn a_mooncake_pair_answers_messages_with_its_decode_worker() {
    let (_engine, reference) = reference().await;
    let (fleet, router) = split(PdDialect::Mooncake).await;
    for stream in [false, true] {
        let body = message(usize::from(stream), stream);
        let (one, _) = answer_of(&reference, &body).await;
        assert_eq!(answer_of(&router.client, &body).await, (one, false), "{body}");
    }
    assert!(fleet.prefill[0].requests(MESSAGES).is_empty());
}

/// The decode workers of the pool answer nothing alone.
#[tokio::test]
async fn a_pool_of_sglang_pairs_refuses_messages() {
    let (fleet, router) = split(PdDialect::Sglang).await;
    for stream in [false, true] {
        let answer = router.client.post(MESSAGES, &message(0, stream)).await.unwrap();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text());
        let error = answer.json().unwrap();
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
    }
    let engines = [&fleet.prefill[0], &fleet.decode[0]];
    assert!(engines.iter().all(|engine| engine.requests(MESSAGES).is_empty()));
}
