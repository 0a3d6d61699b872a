//! Every fault, as a client or a subscriber meets it.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use mock_engine::{BatchLoss, MockConfig, MockEngine, RequestFault, Times};
use serde_json::{Value, json};

use crate::client::{complete, get, open, post, whole};
use crate::subscriber::{replay, request_replay, subscribe};
use crate::{eventually, instant, slow, start};

fn body(stream: bool) -> Value {
    json!({"prompt": [1, 2, 3], "max_tokens": 5, "stream": stream})
}

async fn send(engine: &MockEngine, stream: bool) -> crate::client::Reply {
    post(engine, "/v1/completions", &body(stream)).await
}

#[tokio::test]
async fn a_status_comes_as_often_as_scripted_and_spares_other_paths() {
    let engine = start(instant()).await;
    let refuse = RequestFault::Status {
        status: StatusCode::TOO_MANY_REQUESTS,
        retry_after: Some(7),
    };
    engine.faults().on_requests(refuse, Times::Next(1));
    assert_eq!(get(&engine, "/health").await.status, 200);
    let refused = send(&engine, false).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.headers["retry-after"]),
        (429, &http::HeaderValue::from(7))
    );
    assert_eq!(refused.json()["error"]["code"], 429);
    assert_eq!(send(&engine, false).await.status, 200);
    assert_eq!((engine.stats().faulted, engine.stats().requests), (1, 1));
}

#[tokio::test]
async fn a_hanging_request_goes_on_once_the_fault_is_cleared() {
    let engine = start(instant()).await;
    engine
        .faults()
        .on_requests(RequestFault::Hang, Times::UntilCleared);
    let request = send(&engine, false);
    tokio::pin!(request);
    let begun = Instant::now();
    while engine.stats().faulted == 0 {
        assert!(begun.elapsed() < crate::DEADLINE);
        let answered = tokio::time::timeout(Duration::from_millis(1), &mut request).await;
        assert!(answered.is_err(), "it answered");
    }
    engine.faults().clear();
    assert_eq!(request.await.status, 200);
}

#[tokio::test]
async fn a_held_answer_is_computed_and_sent_once_the_fault_is_cleared() {
    for stream in [false, true] {
        let engine = start(instant()).await;
        engine.faults().hold_answers();
        let request = send(&engine, stream);
        tokio::pin!(request);
        let begun = Instant::now();
        while engine.stats().requests == 0 || engine.stats().in_flight() > 0 {
            assert!(begun.elapsed() < crate::DEADLINE);
            let answered = tokio::time::timeout(Duration::from_millis(1), &mut request).await;
            assert!(answered.is_err(), "it answered");
        }
        engine.faults().clear();
        let answer = request.await;
        assert_eq!((answer.status.as_u16(), answer.complete), (200, true));
    }
}

#[tokio::test]
async fn a_held_stream_has_so_many_tokens_and_goes_on_once_the_fault_is_cleared() {
    let engine = start(instant()).await;
    engine.faults().hold_streams_after(2);
    let stream = open(&engine, Method::POST, "/v1/completions", body(true).to_string());
    let mut stream = stream.await.expect("an answer");
    let mut begun = String::new();
    while begun.matches("\n\n").count() < 2 {
        let frame = stream.frame().await.expect("a token").expect("a token");
        begun.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("UTF-8"));
    }
    eventually("computed", || engine.stats().completed == 1).await;
    eventually("held", || engine.stats().held_streams == 1).await;
    // Only streams are held.
    assert!(send(&engine, false).await.complete);
    assert!(stream.frame().now_or_never().is_none(), "no third token");
    engine.faults().clear();
    let rest = whole(stream).await;
    assert_eq!((rest.complete, rest.chunks().len()), (true, 3));
    assert_eq!(engine.stats().held_streams, 0);
}

#[tokio::test]
async fn a_cut_lets_so_many_tokens_through() {
    let engine = start(instant()).await;
    engine
        .faults()
        .on_requests(RequestFault::Cut { after_tokens: 2 }, Times::Next(2));
    let stream = send(&engine, true).await;
    assert_eq!(
        (stream.status.as_u16(), stream.complete, stream.chunks().len()),
        (200, false, 2)
    );
    let plain = send(&engine, false).await;
    assert_eq!((plain.status.as_u16(), plain.complete), (200, false));
    assert!(!plain.body.is_empty());
    assert!(send(&engine, true).await.complete);
    assert_eq!(engine.stats().in_flight(), 0);
}

#[tokio::test]
async fn a_closed_listener_refuses_and_breaks_what_is_open() {
    let engine = start(MockConfig {
        time_scale: 10.0,
        ..slow()
    })
    .await;
    let endless = json!({"prompt": [1], "max_tokens": 900, "ignore_eos": true, "stream": true});
    let endless = post(&engine, "/v1/completions", &endless);
    let close = async {
        eventually("running", || engine.stats().running == 1).await;
        engine.faults().refuse_connections().await.expect("an engine");
    };
    let (broken, ()) = tokio::join!(endless, close);
    assert!(!broken.complete);
    let refused = open(&engine, Method::GET, "/health", "").await;
    assert!(refused.is_err_and(|error| error.is_connect()));
    eventually("cancelled", || engine.stats().cancelled == 1).await;
    engine.faults().accept_connections().await.expect("an engine");
    assert_eq!(get(&engine, "/health").await.status, 200);
}

#[tokio::test]
async fn a_restart_breaks_off_what_runs() {
    let engine = start(slow()).await;
    let request = json!({"prompt": [1], "max_tokens": 900, "ignore_eos": true, "stream": true});
    let request = post(&engine, "/v1/completions", &request);
    let restart = async {
        eventually("running", || engine.stats().running == 1).await;
        engine.faults().restart(None).await.expect("an engine");
    };
    let (broken, ()) = tokio::join!(request, restart);
    assert!(!broken.complete);
    assert_eq!((engine.stats().in_flight(), engine.stats().blocks_used), (0, 0));
}

#[tokio::test]
async fn a_restart_forgets_stored_responses_and_adapters_of_before() {
    let engine = start(MockConfig {
        loras: vec!["configured".to_owned()],
        ..instant()
    })
    .await;
    let load = json!({"lora_name": "ad", "lora_path": "/adapters/ad"});
    post(&engine, "/v1/load_lora_adapter", &load).await;
    let unload = json!({"lora_name": "configured"});
    post(&engine, "/v1/unload_lora_adapter", &unload).await;
    let stored = post(&engine, "/v1/responses", &json!({"model": "ad", "input": "hi"})).await;
    let stored = format!("/v1/responses/{}", stored.json()["id"].as_str().expect("an id"));
    assert_eq!(get(&engine, &stored).await.status, 200);
    engine.faults().restart(None).await.expect("an engine");
    assert_eq!(get(&engine, &stored).await.status, 404);
    let models = get(&engine, "/v1/models").await.json();
    let names: Vec<&Value> = models["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(names, ["mock", "configured"]);
}

#[tokio::test]
async fn a_slow_engine_takes_longer() {
    let engine = start(MockConfig {
        time_scale: 1e4,
        ..slow()
    })
    .await;
    engine.faults().slow_down(500.0);
    let begun = Instant::now();
    complete(&engine, &[1, 2, 3], 2).await;
    // One step of a second, at 500/10000 of real time.
    assert!(begun.elapsed() >= Duration::from_millis(49));
}

#[tokio::test]
async fn a_slow_tokenizer_and_a_sick_engine_report_it() {
    let engine = start(instant()).await;
    engine.faults().slow_tokenize(Duration::from_millis(30));
    engine.faults().fail_health(Some(StatusCode::SERVICE_UNAVAILABLE));
    let begun = Instant::now();
    post(&engine, "/tokenize", &json!({"prompt": "x"})).await;
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert_eq!(get(&engine, "/health").await.status, 503);
    engine.faults().clear();
    assert_eq!(get(&engine, "/health").await.status, 200);
}

#[tokio::test]
async fn lost_batches_leave_gaps() {
    let engine = start(instant()).await;
    let seqs = || {
        replay(&engine, 0)
            .into_iter()
            .map(|(seq, _)| seq)
            .collect::<Vec<_>>()
    };
    engine.faults().lose_batches(1, BatchLoss::OnWire);
    complete(&engine, &[1; 5], 1).await;
    engine.faults().lose_batches(1, BatchLoss::Everywhere);
    complete(&engine, &[2; 5], 1).await;
    complete(&engine, &[3; 5], 1).await;
    assert_eq!(seqs(), [0, 2]);
}

#[tokio::test]
async fn a_mute_publisher_keeps_what_it_does_not_publish() {
    let engine = start(instant()).await;
    let (subscription, _) = subscribe(&engine).await;
    let missed = engine.stats().batches;
    engine.faults().mute_publisher(true);
    complete(&engine, &[1; 5], 1).await;
    assert_eq!(engine.stats().batches, missed + 1);
    let unanswered = request_replay(&engine, 0);
    assert_eq!(unanswered.poll(zmq::POLLIN, 50), Ok(0));
    engine.faults().mute_publisher(false);
    complete(&engine, &[2; 5], 1).await;
    let next = subscription.recv_multipart(0).expect("a message in time");
    assert_eq!(next[1], (missed + 1).to_be_bytes());
    assert_eq!(replay(&engine, missed)[0].0, missed);
}
