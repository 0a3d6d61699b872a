//! Tests of responses that are held back while another worker is tried: which ones, and their way to the client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, StatusCode};

use crate::client::{chat, post, send};
use crate::router::{Builder, Router, router};
use crate::worker::{Worker, json};

/// Error of an engine.
const TOO_LONG: &str = r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#;

/// Starts a worker that answers with this status and a header of its own.
async fn answering(status: u16, header: (&'static str, &'static str)) -> Worker {
    Worker::start(move |_| async move {
        let mut answer = json(status, "mine");
        let (name, value) = header;
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
        answer
    })
    .await
}

fn retrying(statuses: &[u16]) -> Builder {
    let statuses = statuses
        .iter()
        .map(|status| StatusCode::from_u16(*status).unwrap());
    let statuses = statuses.collect();
    router().with(|router| router.retries.statuses = statuses)
}

fn paid_retries(router: &Router) -> f64 {
    router.metric(r#"conductor_retries_total{pool="main",kind="paid"}"#)
}

/// Returns a router of this worker and of one that cannot be reached.
async fn beside_unreachable(a: &Worker) -> Builder {
    let unreachable = Worker::unreachable();
    router().worker("a", &a.url()).worker("b", &unreachable)
}

#[tokio::test]
async fn each_listed_status_is_tried_elsewhere_and_no_other() {
    for (status, is_listed) in [(408, true), (409, true), (500, true), (422, false), (503, false)] {
        let (a, b) = (answering(status, ("x-own", "a")).await, Worker::named("b").await);
        let router = retrying(&[408, 409, 500])
            .worker("a", &a.url())
            .worker("b", &b.url())
            .start()
            .await;
        let answer = send(router.address, chat()).await;
        let expected = if is_listed { 200 } else { status };
        assert_eq!(answer.status, expected, "{status}");
        assert_eq!(b.received().len(), usize::from(is_listed), "{status}");
        assert_eq!(paid_retries(&router), f64::from(u8::from(is_listed)), "{status}");
    }
}

#[tokio::test]
async fn a_response_that_is_held_back_keeps_its_end_to_end_headers() {
    const KEPT: [(&str, &str); 4] = [
        ("content-encoding", "gzip"),
        ("x-ratelimit-remaining", "0"),
        ("vary", "accept-encoding"),
        ("content-length", "4"),
    ];
    for (name, value) in KEPT {
        let a = answering(500, (name, value)).await;
        let router = beside_unreachable(&a).await.start().await;
        let answer = send(router.address, chat()).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        let values = answer.headers.get_all(HeaderName::from_static(name));
        assert_eq!(values.iter().collect::<Vec<_>>(), [value], "{name}");
        assert_eq!(answer.header("x-conductor-worker"), Some("a"));
        assert_eq!(answer.text().await, "mine");
    }
    let a = answering(500, ("connection", "x-own")).await;
    let router = beside_unreachable(&a).await.start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.header("connection"), None, "it is the worker's connection");
}

#[tokio::test]
async fn a_pinned_request_costs_no_retry_and_its_response_is_untouched() {
    let count = AtomicUsize::new(0);
    let a = Worker::start(move |_| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let mut answer = if is_first {
                json(200, r#"{"id":"resp_1","object":"response","status":"completed"}"#)
            } else {
                json(429, "mine")
            };
            answer
                .headers_mut()
                .insert("x-own", HeaderValue::from_static("kept"));
            answer
        }
    })
    .await;
    let b = Worker::named("b").await;
    let router = router().worker("a", &a.url()).worker("b", &b.url()).start().await;
    let first = post("/v1/responses", r#"{"model":"m","input":"hi"}"#);
    send(router.address, first).await.text().await;
    let next = post(
        "/v1/responses",
        r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#,
    );
    let answer = send(router.address, next).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("x-own"), Some("kept"));
    assert_eq!(paid_retries(&router), 0.0);
    assert!(b.received().is_empty());
}

fn streamed(path: &str) -> Request<bytes::Bytes> {
    post(path, r#"{"model":"m","messages":[],"stream":true}"#)
}

#[tokio::test]
async fn behind_comments_a_response_that_was_held_back_is_an_event_with_its_message() {
    for (status, kind) in [(429, "invalid_request_error"), (500, "server_error")] {
        let a = Worker::start(move |_| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            json(status, TOO_LONG)
        })
        .await;
        let router = router()
            .worker("a", &a.url())
            .worker("b", &Worker::unreachable())
            .with(|with| with.keep_alive = Some(Duration::from_millis(1)))
            .start()
            .await;
        let answer = send(router.address, streamed("/v1/chat/completions")).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = answer.text().await;
        let event = format!(r#"{{"error":{{"message":"too long","type":"{kind}","#);
        assert!(text.contains(&event), "{text}");
    }
}
