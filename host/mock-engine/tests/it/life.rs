//! Starting, stopping, leaving, time.

use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use mock_engine::{CostModel, MockConfig, MockEngine, StartError};
use serde_json::json;

use crate::client::{complete, get, open, post};
use crate::{eventually, instant, slow, start};

#[tokio::test]
async fn a_stopped_engine_leaves_its_ports_to_the_next() {
    let first = start(instant()).await;
    let port = |endpoint: &str| {
        endpoint
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port")
    };
    let ports = MockConfig {
        port: first.http_addr().port(),
        kv_events_port: port(first.kv_events()),
        kv_replay_port: port(first.kv_replay()),
        ..instant()
    };
    complete(&first, &[1; 9], 1).await;
    let taken = MockEngine::start(ports.clone()).await;
    assert!(matches!(taken, Err(StartError::Listen { .. })));
    first.stop().await;
    let second = start(ports).await;
    assert_eq!(get(&second, "/health").await.status, 200);
}

#[tokio::test]
async fn a_dropped_engine_ends_too() {
    let engine = start(instant()).await;
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
        ..slow()
    })
    .await;
    let body = json!({"prompt": [1, 2, 3, 4, 5], "max_tokens": 500, "stream": true});
    let answer = open(&engine, Method::POST, "/v1/completions", body.to_string()).await;
    let mut body = answer.expect("an answer").into_body();
    body.frame().await.expect("a token").expect("a frame");
    assert_eq!((engine.stats().running, engine.stats().blocks_used), (1, 2));
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
