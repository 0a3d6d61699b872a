//! Tests of the seam between front ends and placement: a front end that sends requests itself gets the decisions,
//! refusals and accounting of the HTTP front end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use proxy::{AnswerFailure, Place, Placed, SendFailure};
use routing::Dialect;

use crate::client::{chat, post, send};
use crate::eventually;
use crate::policy::{Scripted, route};
use crate::router::{Router, router};
use crate::worker::{Leaving, Worker, json, streaming};

async fn place(router: &Router, request: Request<Bytes>) -> Result<Placed, Box<Response<Bytes>>> {
    let (head, body) = request.into_parts();
    Place::new(Arc::clone(&router.proxy))
        .place(head, None, body)
        .await
}

fn address(placed: &Placed) -> SocketAddr {
    placed
        .worker
        .url
        .strip_prefix("http://")
        .unwrap()
        .parse()
        .unwrap()
}

/// Makes the request that a front end sends for the client's.
fn outgoing(placed: &Placed, client: &Request<Bytes>) -> Request<Bytes> {
    let mut request = client.clone();
    placed.headers.apply(request.headers_mut());
    *request.body_mut() = placed.body.clone();
    request.headers_mut().insert("host", "worker".parse().unwrap());
    request
}

#[tokio::test]
async fn a_front_end_sends_what_the_http_front_end_sends_and_answers_with_the_same_headers() {
    let worker = Worker::start(|_| async {
        let mut response = json(200, r#"{"usage":{"prompt_tokens":3,"completion_tokens":2}}"#);
        response.headers_mut().insert("x-engine", "e".parse().unwrap());
        response
    })
    .await;
    let router = router()
        .worker("a", &worker.url())
        .policy(Scripted::new(|_| Ok(route(0))))
        .start()
        .await;
    let mut client = chat();
    for (name, value) in [
        ("connection", "x-mine"),
        ("x-mine", "hop"),
        ("x-request-id", "r-1"),
    ] {
        client.headers_mut().insert(name, value.parse().unwrap());
    }
    let over_http = send(router.address, client.clone()).await;

    let placed = place(&router, client.clone()).await.unwrap();
    assert_eq!(&*placed.worker.name, "a");
    assert_eq!(router.in_flight("a"), 1, "the load lease is held");
    let answer = send(address(&placed), outgoing(&placed, &client)).await;
    let start = placed.handle.status(answer.status, &answer.headers);
    let mut headers = answer.headers.clone();
    start.headers.apply(&mut headers);
    let mut handle = start.handle;
    let body = answer.text().await;
    handle.chunk(&Bytes::from(body));
    handle.complete();

    let of_interest = [
        "x-engine",
        "x-request-id",
        "x-conductor-worker",
        "x-conductor-policy",
    ];
    for name in of_interest {
        let given = headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(given, over_http.header(name), "{name}");
        assert!(given.is_some(), "{name}");
    }
    let [first, second] = &worker.received()[..] else {
        panic!("two requests reach the worker")
    };
    assert_eq!(first.body, second.body);
    assert_eq!(first.uri, second.uri);
    let names = |received: &crate::worker::Received| {
        let mut names: Vec<String> = received.headers.keys().map(ToString::to_string).collect();
        names.retain(|name| name != "via");
        names.sort();
        names
    };
    assert_eq!(names(first), names(second));
    eventually("both requests are counted", || router.outcomes("complete") == 2.0).await;
    assert_eq!(router.in_flight("a"), 0);
}

#[tokio::test]
async fn a_front_end_gets_the_refusals_of_the_http_front_end() {
    let worker = Worker::named("a").await;
    let router = router().serving("a", &worker.url(), &["m"]).start().await;
    for body in [
        r#"{"model":"other"}"#,
        "no json",
        r#"{"model":"m","kv_transfer_params":{}}"#,
    ] {
        let request = post("/v1/completions", body);
        let over_http = send(router.address, request.clone()).await;
        let refused = place(&router, request).await.unwrap_err();
        assert_eq!(refused.status(), over_http.status, "{body}");
        assert_eq!(refused.body(), &over_http.text().await, "{body}");
        assert!(refused.headers().contains_key("x-request-id"));
    }
    let unknown = place(&router, post("/v1/unknown", "{}")).await.unwrap_err();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    let get = Request::get("/v1/completions").body(Bytes::new()).unwrap();
    let wrong = place(&router, get).await.unwrap_err();
    assert_eq!(wrong.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(worker.received().is_empty());
}

#[tokio::test]
async fn a_failed_attempt_of_a_front_end_is_placed_on_another_worker() {
    let (leaving, worker) = (Leaving::start().await, Worker::named("b").await);
    let router = router()
        .worker("a", &leaving.url)
        .worker("b", &worker.url())
        .policy(Scripted::new(|_| Ok(route(0))))
        .start()
        .await;
    leaving.leave().await;
    let client = chat();
    let placed = place(&router, client.clone()).await.unwrap();
    assert_eq!(&*placed.worker.name, "a");
    let unreachable = SendFailure::Unreachable(io::ErrorKind::ConnectionRefused.into());
    let placed = placed.handle.failed(unreachable).await.unwrap();
    assert_eq!(&*placed.worker.name, "b");
    assert_eq!(router.in_flight("a"), 0, "the first lease was returned");
    let failed = r#"conductor_worker_failures_total{worker="a",kind="connect"}"#;
    assert_eq!(router.metric(failed), 1.0);
    let (expectations, refusing) = (router.proxy.take_expectations(), router.id("a"));
    assert!(
        expectations.iter().all(|(worker, _)| *worker != refusing),
        "its cache is gone"
    );
    let answer = send(address(&placed), outgoing(&placed, &client)).await;
    placed
        .handle
        .status(answer.status, &answer.headers)
        .handle
        .complete();
    eventually("the request is counted", || router.outcomes("complete") == 1.0).await;
}

#[tokio::test]
async fn a_dropped_placement_returns_its_lease_and_counts_as_a_client_that_left() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let placed = place(&router, chat()).await.unwrap();
    assert_eq!(router.in_flight("a"), 1);
    drop(placed);
    assert_eq!(router.in_flight("a"), 0);
    assert_eq!(router.outcomes("client-left"), 1.0);
}

#[tokio::test]
async fn a_stream_that_breaks_off_at_a_front_end_is_counted_as_one_of_the_http_front_end() {
    let (worker, _pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let placed = place(&router, chat()).await.unwrap();
    let mut headers = http::HeaderMap::new();
    headers.insert("content-type", "text/event-stream".parse().unwrap());
    let mut handle = placed.handle.status(StatusCode::OK, &headers).handle;
    handle.chunk(&Bytes::from_static(b"data: {}\n\n"));
    handle.failed(AnswerFailure::Idle(Duration::from_secs(1)));
    assert_eq!(router.outcomes("idle-timeout"), 1.0);
    assert_eq!(router.in_flight("a"), 0);
}

#[tokio::test]
async fn a_front_end_is_refused_where_every_request_is_split() {
    let (prefill, decode) = (Worker::named("p").await, Worker::named("d").await);
    let router = router()
        .prefill("p", &prefill.url())
        .decode("d", &decode.url())
        .pd(Dialect::Nixl)
        .with_pd(|pd| pd.alone = false)
        .start()
        .await;
    let refused = place(&router, chat()).await.unwrap_err();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let text = std::str::from_utf8(refused.body()).unwrap();
    assert!(text.contains("cannot_be_split"), "{text}");
}

#[tokio::test]
async fn a_front_end_takes_the_prompt_of_an_answer_in_one_piece_for_computed_after_its_expected_time() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let load = || {
        let reading = router.worker("a").load().read();
        (reading.prefill_tokens > 0, reading.decoding)
    };
    let stream = post("/v1/completions", r#"{"model":"m","prompt":"hi","stream":true}"#);
    let placed = place(&router, stream).await.unwrap();
    assert_eq!(placed.timeouts.expected_prefill, None, "its first chunk is seen");
    drop(placed);

    let whole = post("/v1/completions", r#"{"model":"m","prompt":"hi"}"#);
    let mut placed = place(&router, whole).await.unwrap();
    assert!(placed.timeouts.expected_prefill.is_some());
    assert_eq!(load(), (true, 0));
    placed.handle.assume_prefilled();
    assert_eq!(load(), (false, 1));
    drop(placed);
    assert_eq!(load(), (false, 0));
}

#[tokio::test]
async fn the_debug_text_of_a_placement_has_no_prompt() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let body = r#"{"model":"m","prompt":"a secret prompt"}"#;
    let placed = place(&router, post("/v1/completions", body)).await.unwrap();
    let text = format!("{placed:?} {:?}", placed.handle);
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_status_is_retried_within_the_rules_and_the_budget_of_the_pool() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let busy = || {
        let mut response = Response::new(Bytes::from_static(br#"{"error":"busy"}"#));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Box::new(response)
    };
    let two_workers = || router().worker("a", &a.url()).worker("b", &b.url());
    let strict = two_workers()
        .with(|router| router.retries.statuses = Vec::new())
        .start()
        .await;
    let placed = place(&strict, chat()).await.unwrap();
    assert!(!placed.handle.retries_status(StatusCode::SERVICE_UNAVAILABLE));

    let router = two_workers().start().await;
    let placed = place(&router, chat()).await.unwrap();
    let first = placed.worker.name.clone();
    assert!(!placed.handle.retries_status(StatusCode::BAD_REQUEST));
    assert!(placed.handle.retries_status(StatusCode::SERVICE_UNAVAILABLE));
    let placed = placed.handle.failed(SendFailure::Refused(busy())).await.unwrap();
    assert_ne!(placed.worker.name, first);
    let paid = router.metric(r#"conductor_retries_total{pool="main",kind="paid"}"#);
    assert_eq!(paid, 1.0);
    let failures = format!(r#"conductor_worker_failures_total{{worker="{first}",kind="server-error"}}"#);
    assert_eq!(router.metric(&failures), 1.0);
    assert!(
        !placed.handle.retries_status(StatusCode::SERVICE_UNAVAILABLE),
        "no third worker serves the model"
    );
}

#[tokio::test]
async fn a_request_is_not_placed_again_after_its_deadline() {
    let (a, b) = (Worker::named("a").await, Worker::named("b").await);
    let router = router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .with(|router| router.limits.request_timeout = Some(Duration::from_millis(300)))
        .start()
        .await;
    let placed = place(&router, chat()).await.unwrap();
    let deadline = placed.timeouts.deadline.unwrap();
    tokio::time::sleep_until(deadline.into()).await;
    let refused = placed.handle.failed(SendFailure::Closed).await.unwrap_err();
    assert_eq!(refused.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(router.outcomes("request-timeout"), 1.0);
    assert_eq!(router.in_flight("a") + router.in_flight("b"), 0);
}

#[tokio::test]
async fn anthropics_clients_get_their_request_id_under_its_name() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut request = post(
        "/v1/messages",
        r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#,
    );
    request
        .headers_mut()
        .insert("x-request-id", "r-1".parse().unwrap());
    let placed = place(&router, request).await.unwrap();
    let mut headers = http::HeaderMap::new();
    headers.insert("request-id", "the worker's".parse().unwrap());
    let start = placed.handle.status(StatusCode::OK, &headers);
    start.headers.apply(&mut headers);
    assert_eq!(headers["request-id"], "r-1");
    start.handle.complete();
}
