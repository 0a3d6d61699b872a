//! Tests of requests that the end of the drain period cuts: their answers, their accounting, and their clients' limits.

use std::fs;
use std::future::pending;
use std::num::NonZeroU32;
use std::time::Duration;

use http::Request;
use prometheus_client::registry::Registry;
use proxy::record::{FileSpec, LogTarget, RecordFiles, RecordSpec, Recorder, Sampling};
use proxy::{ClientLimits, ClientSpec, EngineFields, KeyHash};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bodies::{half, half_at, read_all};
use crate::client::{post, send};
use crate::eventually;
use crate::router::{Builder, Router, router};
use crate::worker::{Worker, json};

const MESSAGES: &str = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#;

/// Returns an access log that has every request.
pub(crate) fn access_log(folder: &TempDir) -> RecordSpec {
    let recorder = Recorder::new(&mut Registry::default());
    let file = FileSpec {
        path: folder.path().join("access.jsonl"),
        max_bytes: 1 << 20,
        keep: 1,
    };
    let files = RecordFiles {
        access: Some(LogTarget::File(file)),
        ..RecordFiles::default()
    };
    recorder.apply(recorder.plan(files).unwrap());
    RecordSpec {
        access: Some(Sampling::share(1.0)),
        ..RecordSpec::nothing(recorder)
    }
}

/// Returns the lines once all pending ones are written.
pub(crate) fn lines(spec: &RecordSpec, folder: &TempDir) -> Vec<Value> {
    spec.recorder.close();
    let text = fs::read_to_string(folder.path().join("access.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn client() -> ClientSpec {
    ClientSpec {
        name: "x".into(),
        keys: vec![KeyHash::of(b"sk-x")],
        models: vec![],
        tenant: "x".into(),
        priority: 0,
        weight: 1.0,
        may_set: EngineFields::default(),
        limits: ClientLimits {
            tokens: NonZeroU32::new(1_000),
            ..ClientLimits::default()
        },
    }
}

fn keyed(path: &str, body: &'static str) -> Request<bytes::Bytes> {
    let mut request = post(path, body);
    let headers = request.headers_mut();
    headers.insert("authorization", "Bearer sk-x".parse().unwrap());
    headers.insert("x-request-id", "r-1".parse().unwrap());
    request
}

/// Starts a router over a worker, whose drains are short.
async fn short_drains(worker: &Worker, change: impl FnOnce(&mut Builder)) -> Router {
    let router = router().worker("a", &worker.url());
    let router = router.with(|builder| {
        builder.drain = Duration::from_millis(50);
        builder.clients = vec![client()];
    });
    router.with(change).start().await
}

#[tokio::test]
async fn a_request_cut_by_a_drain_has_its_ids_and_costs_its_client_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let record = access_log(&folder);
    let worker = Worker::start(|_| pending()).await;
    let router = short_drains(&worker, |builder| builder.record = record.clone()).await;
    let mut sending = JoinSet::new();
    sending.spawn(send(router.address, keyed("/v1/messages", MESSAGES)));
    eventually("it is under way", || router.in_flight("a") == 1).await;
    router.shut_down();
    let answer = sending.join_next().await.unwrap().unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-request-id"), Some("r-1"));
    assert_eq!(answer.header("request-id"), Some("r-1"));
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), Some("1000"));
    let text = answer.text().await;
    assert!(text.contains(r#""request_id":"r-1""#), "{text}");
    assert_eq!(router.outcomes("shut-down"), 1.0);
    let tokens = r#"conductor_client_tokens_total{client="x",kind="prompt"}"#;
    assert_eq!(router.metric(tokens), 0.0);
    assert_eq!(router.ended().await.cut, 1);
    let lines = lines(&record, &folder);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["outcome"], "shut-down");
    assert_eq!(lines[0]["status"], 503);
    assert_eq!(lines[0]["error_code"], "shutting_down");
    assert_eq!(lines[0]["pool"], "main");
}

/// Drains a router while a body arrives, and checks the answer and that the request is counted.
async fn check_cut_body(router: &Router, client: TcpStream) {
    eventually("its body arrives", || {
        router.metric("conductor_unfinished_bodies") == 1.0
    })
    .await;
    router.shut_down();
    let answer = read_all(client).await;
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("shutting_down"),
        "{answer}"
    );
    let cut = r#"conductor_requests_total{pool="",outcome="shut-down"}"#;
    assert_eq!(router.metric(cut), 1.0);
}

#[tokio::test]
async fn a_request_whose_body_is_cut_by_a_drain_is_counted() {
    let worker = Worker::named("a").await;
    let router = short_drains(&worker, |builder| builder.clients.clear()).await;
    let client = half(router.address, 10).await;
    check_cut_body(&router, client).await;
}

#[tokio::test]
async fn a_request_by_id_whose_body_is_cut_by_a_drain_is_counted() {
    let worker = Worker::start(|_| async { json(200, r#"{"id":"resp_1","status":"queued"}"#) }).await;
    let router = short_drains(&worker, |builder| builder.clients.clear()).await;
    let made = post("/v1/responses", r#"{"model":"m","input":"hi"}"#);
    send(router.address, made).await.text().await;
    let client = half_at(router.address, "/v1/responses/resp_1/cancel", 100, 10).await;
    check_cut_body(&router, client).await;
}

#[tokio::test]
async fn a_stream_of_comments_cut_by_a_drain_was_shut_down_too() {
    let folder = tempfile::tempdir().unwrap();
    let record = access_log(&folder);
    let worker = Worker::start(|_| pending()).await;
    let router = short_drains(&worker, |builder| {
        builder.record = record.clone();
        builder.keep_alive = Some(Duration::from_millis(1));
    })
    .await;
    let body = r#"{"model":"m","prompt":"hi","stream":true}"#;
    let mut answer = send(router.address, keyed("/v1/completions", body)).await;
    assert!(answer.piece().await.unwrap().unwrap().starts_with(b": "));
    router.shut_down();
    let text = answer.text().await;
    assert!(text.contains("shutting_down"), "{text}");
    assert_eq!(router.outcomes("shut-down"), 1.0);
    assert_eq!(router.ended().await.cut, 1);
    let lines = lines(&record, &folder);
    assert_eq!(lines[0]["outcome"], "shut-down", "{lines:#?}");
    assert_eq!(lines[0]["status"], 200);
    assert_eq!(lines[0]["error_code"], "shutting_down");
}

#[tokio::test]
async fn tokenization_and_pages_cut_by_a_drain_are_answered() {
    let worker = Worker::start(|_| pending()).await;
    let router = short_drains(&worker, |_| ()).await;
    let mut counting = JoinSet::new();
    counting.spawn(send(router.address, keyed("/v1/messages/count_tokens", MESSAGES)));
    eventually("it is at the worker", || worker.busy() == 1).await;
    assert_eq!(worker.received()[0].headers["x-request-id"], "r-1");
    let mut listing = JoinSet::new();
    let mut list = keyed("/v1/models", "");
    *list.method_mut() = http::Method::GET;
    listing.spawn(send(router.address, list));
    eventually("both are at the worker", || worker.busy() == 2).await;
    router.shut_down();
    let counted = counting.join_next().await.unwrap().unwrap();
    assert_eq!(counted.status, 503);
    assert_eq!(counted.header("request-id"), Some("r-1"));
    let text = counted.text().await;
    assert!(text.contains(r#""request_id":"r-1""#), "{text}");
    let listed = listing.join_next().await.unwrap().unwrap();
    assert_eq!(listed.status, 503);
    assert!(listed.text().await.contains("shutting_down"));
}
