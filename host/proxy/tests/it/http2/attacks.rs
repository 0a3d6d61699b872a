//! Tests of attacks on a small scale: each is bounded and counted, and blocks no other client.

use std::future::pending;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::raw::{
    CONTINUATION, DATA, END_STREAM, GO_AWAY, HEADERS, RST_STREAM, RawClient, block, frame, head, request,
    reset,
};
use super::*;
use crate::client;
use crate::eventually;
use crate::worker::{Worker, json, streaming};

const ENHANCE_YOUR_CALM: u32 = 11;
const REFUSED_STREAM: u32 = 7;

/// Streams of a trusted proxy's connection count by the address of their client.
#[tokio::test]
async fn streams_of_a_front_count_by_their_clients() {
    let worker = silent().await;
    let router = router().worker("a", &worker.url()).with(|builder| {
        builder.edge.per_address = Some(1);
        builder.edge.fronts = vec!["127.0.0.0/8".parse().unwrap()].into();
    });
    let router = router.start().await;
    let mut front = Client::connect(router.address).await;
    let of = |client: &str| {
        let request = Request::post("http://router/v1/completions").header("x-forwarded-for", client);
        request.body(()).unwrap()
    };
    let mut running = Vec::new();
    for client in ["192.0.2.1", "192.0.2.2"] {
        let (answer, mut body) = front.open(of(client), false).await;
        body.send_data(Bytes::from(COMPLETION), true).unwrap();
        running.push((answer, body));
    }
    eventually("both are under way", || worker.busy() == 2).await;
    let (answer, mut body) = front.open(of("192.0.2.1"), false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    let answer = answered(answer).await;
    assert_eq!(answer.status, 429);
    assert!(answer.text().await.contains("address_full"));
}

/// Starts a worker that never answers completions.
async fn silent() -> Worker {
    Worker::start(|request| async move {
        if request.uri.path() == "/v1/completions" {
            pending::<()>().await;
        }
        json(200, "{}")
    })
    .await
}

#[tokio::test]
async fn a_client_that_opens_and_resets_streams_is_closed() {
    let worker = silent().await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|builder| builder.edge.listeners.http2.resets = 5)
        .start()
        .await;
    let mut client = RawClient::connect(router.address).await;
    let mut frames = Vec::new();
    for number in 0..1_000 {
        let stream = 2 * number + 1;
        frames.extend(head(stream, "/v1/completions"));
        frames.extend(frame(DATA, END_STREAM, stream, b"{}"));
        frames.extend(reset(stream));
    }
    client.send(&frames).await;
    if let Some(goodbye) = client.until(GO_AWAY).await {
        assert_eq!(goodbye.code(), ENHANCE_YOUR_CALM);
    }
    eventually("it is counted", || {
        turned(&router, "http2-flood") + turned(&router, "reset-flood") == 1.0
    })
    .await;
    assert!(router.metric("conductor_edge_http2_requests_total") < 1_000.0);
    eventually("no request is left", || router.in_flight("a") == 0).await;
    let mut other = Client::connect(router.address).await;
    assert_eq!(other.get("/health").await.status, 200);
}

#[tokio::test]
async fn a_client_that_waits_for_its_requests_to_begin_before_it_resets_them_is_closed() {
    let worker = silent().await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|builder| builder.edge.listeners.http2.resets = 2)
        .start()
        .await;
    let mut client = RawClient::connect(router.address).await;
    let mut stream = 1;
    loop {
        let began = f64::from(stream / 2) + 1.0;
        let mut frames = head(stream, "/v1/completions");
        frames.extend(frame(DATA, END_STREAM, stream, COMPLETION.as_bytes()));
        if !client.send(&frames).await {
            break;
        }
        eventually("the request begins, or the connection has ended", || {
            router.metric("conductor_edge_http2_requests_total") >= began
                || turned(&router, "reset-flood") > 0.0
        })
        .await;
        if turned(&router, "reset-flood") > 0.0 {
            break;
        }
        client.send(&reset(stream)).await;
        stream += 2;
        assert!(stream < 10_000, "never closed");
    }
    assert_eq!(turned(&router, "reset-flood"), 1.0);
    eventually("no request is left", || worker.busy() == 0).await;
}

#[tokio::test]
async fn headers_beyond_their_limit_are_refused_and_further_ones_not_kept() {
    let router = router().start().await;
    let mut client = Client::connect(router.address).await;
    for bytes in [70 << 10, 140 << 10] {
        let long = "v".repeat(bytes);
        let request = Request::get("http://router/health").header("x-long", &long);
        let (answer, _) = client.open(request.body(()).unwrap(), true).await;
        assert_eq!(answered(answer).await.status, 431, "{bytes}");
    }
    assert_eq!(turned(&router, "head-too-large"), 1.0);
    let many = (0..80).fold(Request::get("http://router/health"), |request, number| {
        request.header(format!("x-{number}"), "v")
    });
    let (answer, _) = client.open(many.body(()).unwrap(), true).await;
    assert_eq!(answered(answer).await.status, 431);
    assert_eq!(client.get("/health").await.status, 200);
}

#[tokio::test]
async fn continuations_without_end_close_the_connection() {
    let router = router().start().await;
    let mut client = RawClient::connect(router.address).await;
    let mut frames = frame(HEADERS, END_STREAM, 1, &block("GET", "/health", &[]));
    for _ in 0..1_000 {
        // A header of one byte without a value, or no header at all.
        frames.extend(frame(CONTINUATION, 0, 1, &[0, 1, b'x', 0]));
        frames.extend(frame(CONTINUATION, 0, 1, &[]));
    }
    client.send(&frames).await;
    if let Some(goodbye) = client.until(GO_AWAY).await {
        assert_eq!(goodbye.code(), ENHANCE_YOUR_CALM);
    }
    eventually("it is counted", || turned(&router, "http2-flood") == 1.0).await;
    assert_eq!(router.metric("conductor_edge_http2_requests_total"), 0.0);
}

#[tokio::test]
async fn streams_beyond_their_limit_are_refused() {
    let worker = silent().await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|builder| builder.edge.listeners.http2.streams = 2)
        .start()
        .await;
    let mut client = RawClient::connect(router.address).await;
    for stream in [1, 3, 5] {
        client.send(&head(stream, "/v1/completions")).await;
    }
    let refused = client.until(RST_STREAM).await.unwrap();
    assert_eq!((refused.stream, refused.code()), (5, REFUSED_STREAM));
    assert_eq!(router.metric("conductor_edge_http2_requests_total"), 2.0);
}

#[tokio::test]
async fn each_stream_takes_the_place_of_a_connection() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url());
    let router = router.with(|builder| builder.max_connections = 2).start().await;
    let mut client = Client::connect(router.address).await;
    let mut running = Vec::new();
    for _ in 0..2 {
        let (answer, mut body) = client.open(post("/v1/completions"), false).await;
        body.send_data(Bytes::from(COMPLETION), true).unwrap();
        running.push((answer, pens.recv().await.unwrap()));
    }
    assert_eq!(router.metric("conductor_client_connections"), 2.0);
    let (waiting, mut body) = client.open(post("/v1/completions"), false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    // The stream waits, while the router reports its health on the same connection and on another.
    assert_eq!(client.get("/health").await.status, 200);
    assert_eq!(
        client::send(router.address, client::get("/health")).await.status,
        200
    );
    assert!(pens.try_recv().is_err());
    let (first, pen) = running.remove(0);
    drop(pen);
    assert_eq!(answered(first).await.text().await, "");
    drop(pens.recv().await.unwrap());
    assert_eq!(answered(waiting).await.text().await, "");
}

#[tokio::test]
async fn streams_of_one_address_are_as_many_as_its_connections_may_be() {
    let worker = silent().await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|builder| builder.edge.per_address = Some(2))
        .start()
        .await;
    let mut client = Client::connect(router.address).await;
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(client.open(post("/v1/completions"), false).await);
    }
    eventually("two places are taken", || {
        router.metric("conductor_client_connections") == 2.0
    })
    .await;
    let answer = client.post("/v1/completions", COMPLETION).await;
    assert_eq!(answer.status, 429);
    assert!(answer.headers.contains_key("retry-after"));
    assert!(answer.text().await.contains("address_full"));
    assert_eq!(turned(&router, "address-full"), 1.0);
}

#[tokio::test]
async fn slow_bodies_end_one_by_one_and_count_as_unfinished() {
    let worker = Worker::named("answer").await;
    let router = router().worker("a", &worker.url()).with(|builder| {
        builder.edge.bodies.unfinished = 2;
        builder.edge.limits.body_grace = Duration::from_millis(500);
        builder.edge.limits.body_rate = 1 << 30;
    });
    let router = router.start().await;
    let mut client = Client::connect(router.address).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let (answer, mut body) = client.open(post("/v1/completions"), false).await;
        body.send_data(Bytes::from_static(b"{"), false).unwrap();
        slow.push((answer, body));
    }
    for (answer, _body) in slow {
        let status = answered(answer).await.status;
        assert!([408, 503].contains(&status.as_u16()), "{status}");
    }
    let refused = turned(&router, "body-timeout") + turned(&router, "bodies-full");
    assert_eq!(refused + turned(&router, "body-evicted"), 3.0);
    eventually("none arrives", || {
        router.metric("conductor_unfinished_bodies") == 0.0
    })
    .await;
    assert_eq!(client.post("/v1/completions", COMPLETION).await.status, 200);
}

#[tokio::test]
async fn a_stream_whose_client_takes_nothing_ends_alone() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url());
    let router = router.with(|builder| builder.limits.idle_timeout = Duration::from_millis(300));
    let router = router.start().await;
    // The window is closed, so the router may send no data until the client opens it.
    let mut client = Client::with(router.address, Builder::new().initial_window_size(0)).await;
    let (answer, mut body) = client.open(post("/v1/completions"), false).await;
    body.send_data(Bytes::from(COMPLETION), true).unwrap();
    let pen = pens.recv().await.unwrap();
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        let piece = Bytes::from(vec![b'.'; 1 << 16]);
        while pen.send(Ok(piece.clone())).await.is_ok() {}
    });
    let mut answer = answered(answer).await;
    let ended = timeout(PATIENCE, answer.body.data())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(ended.unwrap_err().reason(), Some(h2::Reason::CANCEL));
    eventually("the worker is free", || worker.busy() == 0).await;
    writing.join_next().await.unwrap().unwrap();
    assert_eq!(turned(&router, "overdue"), 1.0);
    assert_eq!(client.get("/health").await.status, 200);
}

#[tokio::test]
async fn a_client_that_gives_no_sign_of_life_is_closed() {
    let router = router().with(|builder| {
        builder.edge.listeners.http2.ping_interval = Duration::from_millis(50);
        builder.edge.listeners.http2.ping_timeout = Duration::from_millis(50);
    });
    let router = router.start().await;
    let mut client = RawClient::connect(router.address).await;
    client.send(&request(1, "/health", &[])).await;
    while client.frame().await.is_some() {}
    eventually("it is counted", || turned(&router, "ping-timeout") == 1.0).await;
}

#[tokio::test]
async fn a_client_that_sends_no_head_is_closed() {
    let router = router();
    let router = router.with(|builder| builder.edge.limits.head_timeout = Duration::from_millis(50));
    let router = router.start().await;
    let mut client = RawClient::connect(router.address).await;
    // An endless head.
    client
        .send(&frame(HEADERS, END_STREAM, 1, &block("GET", "/health", &[])))
        .await;
    while client.frame().await.is_some() {}
    eventually("it is counted", || turned(&router, "head-timeout") == 1.0).await;
}

#[tokio::test]
async fn a_client_that_answers_no_ping_does_not_hold_up_a_drain() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url());
    let router = router.with(|builder| builder.drain = PATIENCE).start().await;
    let mut client = RawClient::connect(router.address).await;
    let mut frames = head(1, "/v1/completions");
    frames.extend(frame(DATA, END_STREAM, 1, COMPLETION.as_bytes()));
    assert!(client.send(&frames).await);
    let pen = pens.recv().await.unwrap();
    pen.send(Ok("data: 1\n\n".into())).await.unwrap();
    client.until(DATA).await.unwrap();
    router.shut_down();
    client.until(GO_AWAY).await.unwrap();
    // Longer than the grace period of a connection without streams.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    pen.send(Ok("data: [DONE]\n\n".into())).await.unwrap();
    drop(pen);
    let ended = Instant::now();
    while client.frame().await.is_some() {}
    assert!(ended.elapsed() < PATIENCE / 2);
    assert_eq!(router.ended().await.cut, 0);
}
