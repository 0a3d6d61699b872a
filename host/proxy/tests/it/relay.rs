//! Tests of relayed responses: chunk by chunk, complete, and with the departure of either side.

use std::time::Duration;

use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{End, chat, post, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::log::Log;
use crate::router::{Router, router};
use crate::worker::{BrokenOff, Worker, streaming, writing};

const FIRST: &str = "data: {\"n\":1}\n\n";
const LAST: &str = "data: {\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n";

/// Waits until the worker `a` is free of the request of a client that left.
async fn released_as_the_client_left(router: &Router, worker: &Worker) {
    eventually("the lease is given back", || router.in_flight("a") == 0).await;
    eventually("the worker's connection is closed", || worker.busy() == 0).await;
    assert_eq!(router.outcomes("client-left"), 1.0);
}

#[tokio::test]
async fn a_chunk_arrives_before_the_next_is_sent() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    // Of other requests, the first token would be assumed after the expected time.
    let request = post(
        "/v1/chat/completions",
        r#"{"model":"m","messages":[],"stream":true}"#,
    );
    let mut answer = send(router.address, request).await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    assert_eq!(answer.piece().await.unwrap().unwrap(), FIRST);
    assert_eq!(router.worker("a").load().read().decoding, 1);
    pen.send(Ok(LAST.into())).await.unwrap();
    drop(pen);
    assert_eq!(answer.text().await, LAST);
    assert_eq!(router.in_flight("a"), 0);
    assert!(!router.worker("a").load().read().ttft_ewma_ms.is_nan());
    assert_eq!(
        router.metric(r#"conductor_time_to_first_token_seconds_count{pool="main",model="other"}"#),
        1.0
    );
    assert_eq!(router.pool_metric("cached_tokens_total"), 64.0);
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_the_worker() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    answer.piece().await.unwrap().unwrap();
    assert_eq!((router.in_flight("a"), worker.busy()), (1, 1));
    drop(answer);
    released_as_the_client_left(&router, &worker).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_stops_reading_frees_the_worker() {
    let (worker, mut pens) = streaming().await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.limits.idle_timeout = Duration::from_millis(300))
        .start()
        .await;
    let mut client = TcpStream::connect(router.address).await.unwrap();
    let request = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\n\r\n{}";
    client.write_all(request).await.unwrap();
    let pen = pens.recv().await.unwrap();
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn(async move {
        let piece = bytes::Bytes::from(vec![b'.'; 1 << 16]);
        while pen.send(Ok(piece.clone())).await.is_ok() {}
    });
    eventually("the stream runs", || router.in_flight("a") == 1).await;
    released_as_the_client_left(&router, &worker).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_frees_the_worker() {
    let worker = Worker::start(|_| std::future::pending()).await;
    let router = router().worker("a", &worker.url()).start().await;
    tokio::select! {
        _ = send(router.address, chat()) => unreachable!("the worker never answers"),
        () = eventually("the worker has the request", || worker.busy() == 1) => {}
    }
    released_as_the_client_left(&router, &worker).await;
}

#[tokio::test]
async fn a_stream_whose_worker_dies_ends_with_an_error_event() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok("data: {\"n\":".into())).await.unwrap();
    assert_eq!(answer.piece().await.unwrap().unwrap(), "data: {\"n\":");
    pen.send(Err(BrokenOff)).await.unwrap();
    let (text, end) = answer.rest().await;
    let event = "data: {\"error\":{\"message\":\"the worker broke off its answer\",\"type\":\"server_error\",\
                 \"param\":null,\"code\":\"worker_broke_off\"}}";
    assert_eq!(text, format!("\n\n{event}\n\n"));
    assert_eq!(end, End::Clean);
    assert_eq!(router.in_flight("a"), 0);
    assert_eq!(router.outcomes("upstream-error"), 1.0);
    assert_eq!(
        router.metric(r#"conductor_worker_failures_total{worker="a",kind="broken-off"}"#),
        1.0
    );
}

#[tokio::test]
async fn the_error_event_of_a_responses_stream_is_numbered_after_the_others() {
    for events in [0, 2] {
        let (worker, mut pens) = streaming().await;
        let router = router().worker("a", &worker.url()).start().await;
        let request = post("/v1/responses", r#"{"model":"m","input":"hi","stream":true}"#);
        let mut answer = send(router.address, request).await;
        let pen = pens.recv().await.unwrap();
        for number in 0..events {
            let event = format!("event: e\ndata: {{\"sequence_number\":{number}}}\n\n");
            pen.send(Ok(event.clone().into())).await.unwrap();
            assert_eq!(answer.piece().await.unwrap().unwrap(), event);
        }
        pen.send(Err(BrokenOff)).await.unwrap();
        let (text, _) = answer.rest().await;
        let last = format!(
            "\"code\":\"worker_broke_off\",\"message\":\"the worker broke off its answer\",\"param\":null,\"sequence_number\":{events}}}\n\n"
        );
        assert!(text.ends_with(&last), "{text}");
    }
}

#[tokio::test]
async fn a_stream_that_dies_after_its_last_event_is_complete() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(LAST.into())).await.unwrap();
    assert_eq!(answer.piece().await.unwrap().unwrap(), LAST);
    pen.send(Err(BrokenOff)).await.unwrap();
    assert_eq!(answer.text().await, "");
    assert_eq!(router.outcomes("complete"), 1.0);
}

#[tokio::test]
async fn a_worker_that_breaks_off_before_the_first_byte_failed_to_answer() {
    let (worker, mut pens) = streaming().await;
    let router = router()
        .worker("a", &worker.url())
        .worker("b", &worker.url())
        .start()
        .await;
    let answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Err(BrokenOff)).await.unwrap();
    let (text, _) = answer.rest().await;
    assert!(text.contains("\"code\":\"worker_broke_off\""), "{text}");
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
}

#[tokio::test]
async fn an_answer_in_one_piece_that_breaks_off_is_aborted() {
    let (worker, mut pens) = writing("application/json").await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok("{\"half\":".into())).await.unwrap();
    assert_eq!(answer.piece().await.unwrap().unwrap(), "{\"half\":");
    pen.send(Err(BrokenOff)).await.unwrap();
    assert_eq!(answer.rest().await, (String::new(), End::Aborted));
    assert_eq!(router.in_flight("a"), 0);
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_with_an_error_event() {
    let (worker, mut pens) = streaming().await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.limits.idle_timeout = Duration::from_millis(50))
        .start()
        .await;
    let answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    let (text, end) = answer.rest().await;
    assert!(
        text.starts_with(FIRST) && text.contains("\"code\":\"worker_timeout\""),
        "{text}"
    );
    assert_eq!(end, End::Clean);
    eventually("the worker's connection is closed", || worker.busy() == 0).await;
    assert_eq!(router.outcomes("idle-timeout"), 1.0);
}

#[tokio::test]
async fn a_worker_that_does_not_begin_in_time_is_given_up() {
    let worker = Worker::start(|_| std::future::pending()).await;
    let router = router()
        .worker("a", &worker.url())
        .worker("b", &worker.url())
        .with(|builder| builder.limits.first_byte_timeout = Duration::from_millis(50))
        .start()
        .await;
    let clock = StoppedClock::stop();
    let queried = async {
        eventually("the worker has the request", || worker.received().len() == 1).await;
        clock.go_on();
    };
    let (answer, ()) = futures_util::join!(send(router.address, chat()), queried);
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(answer.text().await.contains("\"code\":\"worker_timeout\""));
    assert_eq!(
        worker.received().len(),
        1,
        "it may be at work: no other worker is queried"
    );
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
    eventually("the worker's connection is closed", || worker.busy() == 0).await;
}

#[tokio::test]
async fn a_worker_that_sends_a_head_and_never_begins_rests() {
    let (worker, mut pens) = streaming().await;
    let log = Log::begin();
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.limits.first_byte_timeout = Duration::from_millis(50))
        .start()
        .await;
    let mut request = chat();
    request
        .headers_mut()
        .insert("x-request-id", "mine".parse().unwrap());
    let clock = StoppedClock::stop();
    let answer = send(router.address, request).await;
    let _pen = pens.recv().await.unwrap();
    clock.go_on();
    let (text, end) = answer.rest().await;
    assert!(text.contains("\"code\":\"worker_timeout\""), "{text}");
    assert_eq!(end, End::Clean);
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
    let warnings = log.lines("broke off");
    assert!(warnings[0].contains("request=mine "), "{warnings:?}");
}

#[tokio::test]
async fn a_drain_lets_a_running_stream_finish() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    router.shut_down();
    eventually("draining", || router.readiness.objection() == Some("draining")).await;
    pen.send(Ok(LAST.into())).await.unwrap();
    drop(pen);
    assert_eq!(answer.text().await, [FIRST, LAST].concat());
    assert_eq!(router.ended().await.cut, 0);
}

#[tokio::test]
async fn a_drain_cuts_what_does_not_finish_in_time() {
    let (worker, mut pens) = writing("application/json").await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.drain = Duration::from_millis(50))
        .start()
        .await;
    let answer = send(router.address, chat()).await;
    let _pen = pens.recv().await.unwrap();
    let address = router.address;
    router.shut_down();
    assert_eq!(router.ended().await.cut, 1);
    assert_eq!(answer.rest().await, (String::new(), End::Aborted));
    assert!(TcpStream::connect(address).await.is_err());
    eventually("the worker's connection is closed", || worker.busy() == 0).await;
}

#[tokio::test]
async fn a_stream_that_a_drain_cuts_ends_with_an_error_event() {
    let (worker, mut pens) = streaming().await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.drain = Duration::from_millis(50))
        .start()
        .await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    assert_eq!(answer.piece().await.unwrap().unwrap(), FIRST);
    router.shut_down();
    let event = "data: {\"error\":{\"message\":\"the router is shutting down\",\"type\":\"server_error\",\
                 \"param\":null,\"code\":\"shutting_down\"}}";
    assert_eq!(answer.rest().await, (format!("\n\n{event}\n\n"), End::Clean));
    assert_eq!(router.outcomes("shut-down"), 1.0);
    assert_eq!(
        router.metric(r#"conductor_worker_failures_total{worker="a",kind="broken-off"}"#),
        0.0
    );
    assert_eq!(router.ended().await.cut, 1);
    eventually("the worker's connection is closed", || worker.busy() == 0).await;
}
