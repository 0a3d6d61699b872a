//! SGLang: the same body to both, with a room to meet in.

use std::time::Instant;

use http::Method;
use mock_engine::{MockEngine, PdDialect};
use serde_json::{Value, json};

use super::{
    ABORT, Pair, alone, background, body, brief, cached, check_failed, pair, pair_of, prompt, scaled, send,
    text_of, with,
};
use crate::client::{open_url, whole};
use crate::eventually;

async fn sglang() -> Pair {
    pair(PdDialect::Sglang).await
}

fn port(p: &MockEngine) -> u16 {
    let url = p.bootstrap().expect("a bootstrap server");
    url.rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port")
}

fn meeting(p: &MockEngine, request: &Value, room: u64) -> Value {
    let members = json!({"bootstrap_host": "127.0.0.1", "bootstrap_port": port(p), "bootstrap_room": room});
    with(request.clone(), members)
}

#[tokio::test]
async fn each_leg_waits_for_the_other() {
    let pair = sglang().await;
    let request = body(&prompt(1));
    for (room, decode_first, hits) in [(i64::MAX as u64, true, 0), (7, false, 8)] {
        let both = meeting(&pair.p, &request, room);
        let (first, second) = if decode_first {
            (&pair.d, &pair.p)
        } else {
            (&pair.p, &pair.d)
        };
        let early = background(first, &both);
        let waits = || pair.d.stats().transfers_waiting == 1 || pair.p.stats().pinned_blocks == 3;
        eventually("waiting", waits).await;
        assert!(!early.is_over());
        let late = send(second, &both).await;
        let early = early.reply().await;
        let (p, d) = if decode_first {
            (late, early)
        } else {
            (early, late)
        };
        assert_eq!(
            (p.json()["usage"]["completion_tokens"].as_u64(), cached(&p)),
            (Some(1), hits)
        );
        assert_eq!((text_of(&d), cached(&d)), (alone(&prompt(1)).await, hits));
        pair.idle().await;
    }
}

#[tokio::test]
async fn streams_and_batches_meet_too() {
    let pair = sglang().await;
    let stream = with(body(&prompt(1)), json!({"stream": true}));
    let stream = meeting(&pair.p, &stream, 1);
    let prefill = background(&pair.p, &stream);
    assert_eq!(send(&pair.d, &stream).await.chunks().len(), 3);
    assert_eq!(prefill.reply().await.chunks().len(), 1);
    let batch = with(
        body(&prompt(1)),
        json!({
            "prompt": [prompt(2), prompt(3)], "bootstrap_host": ["localhost", "localhost"],
            "bootstrap_port": [port(&pair.p), port(&pair.p)], "bootstrap_room": [5, 9],
        }),
    );
    let prefill = background(&pair.p, &batch);
    let answer = send(&pair.d, &batch).await.json();
    for (index, own) in [(0, 2), (1, 3)] {
        let choice = &answer["choices"][index];
        assert_eq!(
            (&choice["index"], &choice["text"]),
            (&json!(index), &json!(alone(&prompt(own)).await))
        );
    }
    assert_eq!(
        prefill.reply().await.json()["choices"].as_array().map(Vec::len),
        Some(2)
    );
    pair.idle().await;
}

#[tokio::test]
async fn a_leg_alone_fails_at_the_timeout() {
    let pair = pair_of(PdDialect::Sglang, brief).await;
    for engine in [&pair.p, &pair.d] {
        let begun = Instant::now();
        check_failed(&send(engine, &meeting(&pair.p, &body(&prompt(1)), 3)).await);
        assert!(begun.elapsed() >= scaled(ABORT));
    }
    pair.idle().await;
}

#[tokio::test]
async fn a_leg_whose_client_leaves_frees_its_own_side_at_once() {
    let pair = sglang().await;
    let both = meeting(&pair.p, &body(&prompt(1)), 3);
    let begun = Instant::now();
    let decode = background(&pair.d, &both);
    eventually("waiting", || pair.d.stats().transfers_waiting == 1).await;
    decode.leave();
    eventually("free", || pair.d.stats().is_idle()).await;
    let prefill = background(&pair.p, &both);
    eventually("kept", || pair.p.stats().pinned_blocks == 3).await;
    prefill.leave();
    pair.idle().await;
    assert!(begun.elapsed() < scaled(ABORT));
}

#[tokio::test]
async fn a_leg_without_a_room_is_refused_and_one_with_a_wrong_server_fails_soon() {
    let pair = sglang().await;
    for engine in [&pair.p, &pair.d] {
        assert_eq!(send(engine, &body(&prompt(1))).await.status, 400);
    }
    let url = format!("{}/health", pair.p.bootstrap().expect("a bootstrap server"));
    assert_eq!(
        whole(open_url(Method::GET, &url, &[], "").await.expect("an answer"))
            .await
            .status,
        200
    );
    pair.p.faults().bootstrap_down(true).await.expect("an engine");
    let begun = Instant::now();
    check_failed(&send(&pair.d, &meeting(&pair.p, &body(&prompt(1)), 3)).await);
    assert!(begun.elapsed() >= scaled(0.7));
}
