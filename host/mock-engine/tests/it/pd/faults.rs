//! Tests common to all dialects: roles, plain requests, faults on either leg.

use http::{Method, StatusCode};
use mock_engine::{MockEngine, PdDialect, RequestFault, Times};
use serde_json::{Value, json};

use super::{PATH, Pair, alone, body, pair, prompt, send, text_of, with};
use crate::client::{open, open_url, whole};
use crate::eventually;

const VLLM: [PdDialect; 3] = [PdDialect::Nixl, PdDialect::Mooncake, PdDialect::Store];

fn leg(name: &str) -> Value {
    with(
        body(&prompt(1)),
        json!({"kv_transfer_params": {name: true, "transfer_id": "t"}}),
    )
}

async fn check_dies(engine: &MockEngine, name: &str) {
    let body = leg(name).to_string();
    let broken = open(engine, Method::POST, PATH, body).await;
    assert!(broken.is_err(), "it answered");
    eventually("dead", || engine.stats().role_violations == 1).await;
    // The listener goes only after that count.
    while open(engine, Method::GET, "/health", "").await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_wrong_role_kills_the_engine_and_what_it_was_doing() {
    for dialect in [PdDialect::Nixl, PdDialect::Mooncake] {
        let Pair { p, d } = pair(dialect).await;
        let before = p.engine_ids();
        check_dies(&p, "do_remote_prefill").await;
        check_dies(&d, "do_remote_decode").await;
        eventually("another life", || p.engine_ids() != before).await;
        for engine in [&p, &d] {
            engine.faults().accept_connections().await.expect("an engine");
            assert_eq!(send(engine, &body(&prompt(1))).await.status, 200);
        }
    }
}

#[tokio::test]
async fn either_role_serves_plain_requests() {
    for dialect in VLLM {
        let pair = pair(dialect).await;
        for engine in [&pair.p, &pair.d] {
            assert_eq!(
                text_of(&send(engine, &body(&prompt(1))).await),
                alone(&prompt(1)).await
            );
        }
        pair.idle().await;
    }
}

#[tokio::test]
async fn a_leg_made_wrong_is_refused_as_by_vllm() {
    let refused = [
        (
            json!({"max_tokens": 1, "min_tokens": 2}),
            "min_tokens must be less than or equal to max_tokens=1, got 2.",
        ),
        (
            json!({"stream": false, "stream_options": {"include_usage": true}}),
            "Stream options can only be defined when `stream=True`.",
        ),
    ];
    let pair = pair(PdDialect::Nixl).await;
    for (members, message) in refused {
        let answer = send(&pair.p, &with(leg("do_remote_decode"), members)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["error"]["message"].as_str()),
            (400, Some(message))
        );
    }
    assert!(pair.p.stats().is_idle());
}

#[tokio::test]
async fn scripted_faults_meet_legs() {
    let pair = pair(PdDialect::Nixl).await;
    let busy = RequestFault::Status {
        status: StatusCode::SERVICE_UNAVAILABLE,
        retry_after: Some(1),
    };
    for (engine, name) in [(&pair.p, "do_remote_decode"), (&pair.d, "do_remote_prefill")] {
        engine.faults().on_requests(busy, Times::Next(1));
        let refused = send(engine, &leg(name)).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.headers["retry-after"]),
            (503, &http::HeaderValue::from(1))
        );
    }
    pair.p
        .faults()
        .on_requests(RequestFault::Cut { after_tokens: 1 }, Times::Next(1));
    assert!(!send(&pair.p, &leg("do_remote_decode")).await.complete);
    pair.p.faults().lose_transfer_params(true);
    let answer = send(&pair.p, &leg("do_remote_decode")).await.json();
    assert_eq!(answer["kv_transfer_params"], Value::Null);
    assert_eq!((pair.p.stats().pinned_blocks, pair.p.stats().faulted), (4, 2));
    pair.p.faults().clear();
    assert!(send(&pair.p, &leg("do_remote_decode")).await.json()["kv_transfer_params"].is_object());
    assert_eq!(pair.p.stats().pinned_blocks, 5);
}

#[tokio::test]
async fn both_legs_are_recorded_as_they_came() {
    let pair = pair(PdDialect::Nixl).await;
    let body = format!("  {}", leg("do_remote_decode"));
    let url = format!("{}{PATH}", pair.p.url());
    let sent = open_url(Method::POST, &url, &[("x-data-parallel-rank", "0")], body.clone()).await;
    assert_eq!(whole(sent.expect("an answer")).await.status, 200);
    let recorded = pair.p.requests(PATH);
    assert_eq!((recorded.len(), &recorded[0].body[..]), (1, body.as_bytes()));
    assert_eq!(recorded[0].headers["x-data-parallel-rank"], "0");
    for _ in 0..40 {
        send(&pair.p, &super::body(&prompt(2))).await;
    }
    assert_eq!(pair.p.requests(PATH).len(), pair.p.config().recorded_requests);
    assert!(pair.d.requests(PATH).is_empty());
}
