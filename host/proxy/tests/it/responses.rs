//! Tests of requests for a response by its id: their time, their tokens, and the health of the worker.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::client::{chat, get, post, send};
use crate::router::{Builder, Router, router};
use crate::worker::{Worker, json};

const QUEUED: &str = r#"{"id":"resp_1","status":"queued","usage":null}"#;
const COMPLETED: &str = r#"{"id":"resp_1","status":"completed","usage":{"input_tokens":1000,
    "input_tokens_details":{"cached_tokens":600},"output_tokens":50,"total_tokens":1050}}"#;

/// Starts a worker that makes the response `resp_1`, keeps it, and fails at completions.
async fn keeping(made: &'static str) -> Worker {
    Worker::start(move |request| async move {
        match (request.method, request.uri.path()) {
            (Method::POST, "/v1/responses") => json(200, made),
            (Method::GET, "/v1/responses/resp_1") => json(200, COMPLETED),
            (_, "/v1/chat/completions") => json(500, "{}"),
            _ => json(200, "{}"),
        }
    })
    .await
}

async fn over(worker: &Worker, change: impl FnOnce(&mut Builder)) -> Router {
    let router = router().worker("a", &worker.url()).with(change).start().await;
    let made = send(
        router.address,
        post("/v1/responses", r#"{"model":"m","input":"hi"}"#),
    )
    .await;
    assert_eq!(made.status, StatusCode::OK);
    made.text().await;
    router
}

async fn poll(router: &Router) {
    let answer = send(router.address, get("/v1/responses/resp_1")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.text().await, COMPLETED);
}

/// Returns the prompt's tokens, those of them that were cached, and the answer's.
fn tokens(router: &Router) -> [f64; 3] {
    [
        router.pool_metric("reported_prompt_tokens_total"),
        router.pool_metric("cached_tokens_total"),
        router.metric(r#"conductor_worker_output_tokens_total{worker="a"}"#),
    ]
}

#[tokio::test]
async fn the_tokens_of_a_response_are_counted_once_however_often_it_is_polled() {
    for (made, at_first) in [(COMPLETED, [1000.0, 600.0, 50.0]), (QUEUED, [0.0; 3])] {
        let worker = keeping(made).await;
        let router = over(&worker, |_| {}).await;
        assert_eq!(tokens(&router), at_first);
        for _ in 0..3 {
            poll(&router).await;
            assert_eq!(tokens(&router), [1000.0, 600.0, 50.0], "{made}");
        }
    }
}

#[tokio::test]
async fn polls_keep_no_failing_worker_in_service() {
    let (worker, other) = (keeping(COMPLETED).await, Worker::named("b").await);
    let other = other.url();
    let router = over(&worker, |with| {
        *with = with.clone().worker("b", &other);
        with.health.server_errors = 2;
    })
    .await;
    for _ in 0..2 {
        poll(&router).await;
        send(router.address, chat()).await.text().await;
    }
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 1.0);
}

#[tokio::test]
async fn a_request_by_id_ends_in_the_time_of_a_request() {
    let worker = Worker::start(|request| async move {
        match request.uri.path() {
            "/v1/responses" => json(200, COMPLETED),
            "/v1/responses/resp_1" => std::future::pending().await,
            _ => json(200, "{}"),
        }
    })
    .await;
    let short = |with: &mut Builder| with.limits.request_timeout = Some(Duration::from_millis(300));
    let router = over(&worker, short).await;
    let answer = send(router.address, get("/v1/responses/resp_1")).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(answer.text().await.contains("request_timeout"));
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 0.0);
}
