//! Starting, stopping, leaving, time.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use mock_engine::{CostModel, MockConfig, MockEngine, StartError};
use serde_json::json;
use tokio::net::TcpSocket;

use crate::client::{complete, get, open, post};
use crate::{eventually, instant, slow, start};

/// Takes a free port, on which an engine can listen and which the system gives to no other process.
fn held_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("it is reused");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let port = socket.local_addr().expect("an address").port();
    (socket, port)
}

#[tokio::test]
async fn a_stopped_engine_leaves_its_ports_to_the_next() {
    let held = [held_port(), held_port(), held_port()];
    let ports = MockConfig {
        port: held[0].1,
        kv_events_port: held[1].1,
        kv_replay_port: held[2].1,
        ..instant()
    };
    let first = start(ports.clone()).await;
    complete(&first, &[1; 9], 1).await;
    let taken = MockEngine::start(ports.clone()).await;
    assert!(matches!(taken, Err(StartError::Listen { .. })));
    first.stop().await;
    let second = start(ports).await;
    assert_eq!(get(&second, "/health").await.status, 200);
}

#[tokio::test]
async fn a_dropped_engine_ends_too() {
    let (_held, port) = held_port();
    let engine = start(MockConfig { port, ..instant() }).await;
    let faults = engine.faults().clone();
    let address = engine.http_addr();
    drop(engine);
    assert!(faults.restart(None).await.is_err());
    let begun = Instant::now();
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        assert!(begun.elapsed() < crate::DEADLINE);
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request() {
    let engine = start(MockConfig {
        time_scale: 10.0,
        block_size: 1024,
        ..slow()
    })
    .await;
    let body = json!({"prompt": [1, 2, 3, 4, 5], "max_tokens": 500, "stream": true});
    let answer = open(&engine, Method::POST, "/v1/completions", body.to_string()).await;
    let mut body = answer.expect("an answer").into_body();
    body.frame().await.expect("a token").expect("a frame");
    assert_eq!((engine.stats().running, engine.stats().blocks_used), (1, 1));
    drop(body);
    eventually("cancelled", || engine.stats().cancelled == 1).await;
    assert_eq!((engine.stats().in_flight(), engine.stats().blocks_used), (0, 0));
}

#[tokio::test]
async fn time_follows_the_cost_model_and_the_scale() {
    let cost = CostModel {
        prefill_fixed_ms: 1000.0,
        decode_step_ms: 100.0,
        ..CostModel::INSTANT
    };
    let engine = start(MockConfig {
        cost,
        time_scale: 20.0,
        answer_tokens: 64,
        ..instant()
    })
    .await;
    let begun = Instant::now();
    complete(&engine, &[1, 2, 3], 11).await;
    // 1000 ms and ten steps of 100 ms, twenty times as fast.
    assert!(
        begun.elapsed() >= Duration::from_millis(99),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn resetting_needs_an_idle_engine() {
    let engine = start(MockConfig {
        time_scale: 10.0,
        ..slow()
    })
    .await;
    let body = json!({"prompt": [1, 2, 3, 4, 5], "max_tokens": 500, "stream": true});
    let answer = open(&engine, Method::POST, "/v1/completions", body.to_string()).await;
    assert!(!engine.reset_prefix_cache().await);
    drop(answer);
    eventually("idle", || engine.stats().in_flight() == 0).await;
    assert_eq!(
        post(&engine, "/reset_prefix_cache", &json!({})).await.json(),
        json!({"success": true})
    );
}
