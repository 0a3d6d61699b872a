//! Tests of multiplexed requests with the features of HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;

use super::raw::{RST_STREAM, RawClient, request};
use super::*;
use crate::client;
use crate::eventually;
use crate::worker::{Worker, streaming};

const FIRST: &str = "data: {\"n\":1}\n\n";

#[tokio::test]
async fn a_request_reaches_its_worker_as_over_http_1_1() {
    let worker = Worker::named("answer").await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut client = Client::connect(router.address).await;
    let with_cookies = Request::post("http://own.name:80/v1/completions?a=b")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (answer, mut body) = client.open(with_cookies, false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    let answer = answered(answer).await;
    assert_eq!(answer.status, 200);
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert!(!answer.headers.contains_key(name), "{name}");
    }
    assert_eq!(answer.text().await, "answer");
    let received = worker.received();
    let received = received
        .iter()
        .find(|request| request.uri.path() == "/v1/completions");
    let received = received.unwrap();
    assert_eq!(received.body, COMPLETION);
    assert!(!received.headers.contains_key("te"));
    let cookies: Vec<_> = received.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
    // The same listener accepts HTTP/1.1.
    assert_eq!(client::send(router.address, client::chat()).await.status, 200);
    let count = |protocol: &str| {
        let labels = format!("listener=\"clients\",protocol=\"{protocol}\"");
        router.metric(&format!("conductor_edge_connections_total{{{labels}}}"))
    };
    assert_eq!((count("h2"), count("http/1.1")), (1.0, 1.0));
    assert_eq!(router.metric("conductor_edge_http2_requests_total"), 1.0);
}

#[tokio::test]
async fn without_prior_knowledge_allowed_a_plain_listener_speaks_http_1_1_only() {
    let router = router::router().start().await;
    let mut client = RawClient::connect(router.address).await;
    // The response, if any, is not a frame that ends an HTTP/2 connection.
    client.send(&request(1, "/health", &[])).await;
    while let Some(frame) = client.frame().await {
        assert_eq!(frame.kind, b"HTTP/1.1 "[3], "it is HTTP/1.1: {frame:?}");
    }
}

#[tokio::test]
async fn many_streams_run_at_a_time_and_a_cancelled_one_ends_at_its_worker_alone() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut client = Client::connect(router.address).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let (answer, mut body) = client.open(post("/v1/completions"), false).await;
        body.send_data(Bytes::from(COMPLETION), true).unwrap();
        let pen = pens.recv().await.unwrap();
        pen.send(Ok(FIRST.into())).await.unwrap();
        let mut answer = answered(answer).await;
        assert_eq!(answer.piece().await.unwrap().unwrap(), FIRST);
        streams.push((answer, body, pen));
    }
    assert_eq!((router.in_flight("a"), worker.busy()), (8, 8));
    let (answer, mut body, _pen) = streams.remove(3);
    body.send_reset(h2::Reason::CANCEL);
    drop(answer);
    eventually("the worker's request is given up", || worker.busy() == 7).await;
    eventually("its lease is given back", || router.in_flight("a") == 7).await;
    for (answer, _, pen) in streams {
        drop(pen);
        assert_eq!(answer.text().await, "");
    }
    eventually("nothing is left", || router.in_flight("a") == 0).await;
    eventually("every place is free", || {
        router.metric("conductor_client_connections") == 1.0
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_is_lost_ends_its_requests() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut client = Client::connect(router.address).await;
    let (_answer, mut body) = client.open(post("/v1/completions"), false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    let _pen = pens.recv().await.unwrap();
    client.connection.shutdown().await;
    eventually("the worker's request is given up", || worker.busy() == 0).await;
    eventually("the place is free", || {
        router.metric("conductor_client_connections") == 0.0
    })
    .await;
}

#[tokio::test]
async fn a_websocket_is_refused_with_a_word_on_how_it_is_opened() {
    let router = router().start().await;
    let mut client = Client::connect(router.address).await;
    let answer = client.get("/v1/realtime?model=m").await;
    assert_eq!(answer.status, 426);
    assert!(answer.text().await.contains("HTTP/1.1"));
}

#[tokio::test]
async fn headers_of_a_connection_reset_their_stream() {
    let router = router().start().await;
    for header in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
    ] {
        let mut client = RawClient::connect(router.address).await;
        client.send(&request(1, "/health", &[header])).await;
        let reset = client.until(RST_STREAM).await.unwrap();
        // PROTOCOL_ERROR.
        assert_eq!((reset.stream, reset.code()), (1, 1), "{header:?}");
    }
}

#[tokio::test]
async fn a_host_besides_another_authority_is_refused() {
    let router = router().start().await;
    let mut client = Client::connect(router.address).await;
    let two = Request::get("http://a/health")
        .header("host", "b")
        .body(())
        .unwrap();
    let (answer, _) = client.open(two, true).await;
    let answer = answered(answer).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().await.contains("host_invalid"));
    assert_eq!(turned(&router, "malformed"), 1.0);
    assert_eq!(client.get("/health").await.status, 200);
}

#[tokio::test]
async fn an_answer_before_the_end_of_a_body_is_whole_and_stops_it_without_an_error() {
    let router = router().start().await;
    let mut client = Client::connect(router.address).await;
    let long = Request::post("http://router/v1/completions").header("content-length", 2 << 20);
    let (answer, mut body) = client.open(long.body(()).unwrap(), false).await;
    body.send_data(Bytes::from_static(b"{"), false).unwrap();
    let answer = answered(answer).await;
    assert_eq!(answer.status, 413);
    assert!(answer.text().await.contains("body_too_large"));
    let stopped = timeout(PATIENCE, std::future::poll_fn(|context| body.poll_reset(context)));
    let reason = stopped.await.expect("it is stopped").unwrap();
    assert_eq!(reason, h2::Reason::NO_ERROR);
}

#[tokio::test]
async fn a_drain_is_announced_and_lets_streams_finish() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut client = Client::connect(router.address).await;
    let (answer, mut body) = client.open(post("/v1/completions"), false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    let mut answer = answered(answer).await;
    assert_eq!(answer.piece().await.unwrap().unwrap(), FIRST);
    let idle = Client::connect(router.address).await;
    router.shut_down();
    idle.closed().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    drop(pen);
    assert_eq!(answer.text().await, FIRST);
    client.closed().await.unwrap();
    assert_eq!(router.ended().await.cut, 0);
}

#[tokio::test]
async fn responses_cut_by_a_drain_end_with_an_error() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|builder| builder.drain = Duration::from_millis(50))
        .start()
        .await;
    let mut client = Client::connect(router.address).await;
    let (answer, mut body) = client.open(post("/v1/completions"), false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    let answer = answered(answer).await;
    router.shut_down();
    let text = answer.text().await;
    assert!(text.contains("shutting_down"), "{text}");
    assert_eq!(router.ended().await.cut, 1);
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_in_time() {
    let router = router();
    let router = router.with(|builder| builder.edge.limits.keep_alive_timeout = Duration::from_millis(50));
    let router = router.start().await;
    let mut client = Client::connect(router.address).await;
    assert_eq!(client.get("/health").await.status, 200);
    client.closed().await.unwrap();
    eventually("it is counted", || turned(&router, "keep-alive-timeout") == 1.0).await;
}
