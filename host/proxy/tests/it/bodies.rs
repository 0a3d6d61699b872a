//! Tests of limits on all request bodies together.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{chat, post, send};
use crate::clock::{StoppedClock, moment};
use crate::router::{Builder, Router, router};
use crate::worker::Worker;
use crate::{PATIENCE, eventually};

const HELD: &str = "conductor_body_bytes";
const COUNT: usize = 60_000;

pub(crate) fn turned(router: &Router, reason: &str) -> f64 {
    router.metric(&format!(
        "conductor_edge_turned_away_total{{reason=\"{reason}\"}}"
    ))
}

/// Opens a connection, sends a part of a body, and keeps it open.
pub(crate) async fn half(router: SocketAddr, bytes: usize) -> TcpStream {
    half_at(router, "/v1/completions", 100_000, bytes).await
}

/// Does the same at a path, with a body of this length.
pub(crate) async fn half_at(router: SocketAddr, path: &str, length: usize, bytes: usize) -> TcpStream {
    let mut client = TcpStream::connect(router).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: r\r\ncontent-length: {length}\r\n\r\n");
    // The router may refuse it before everything is sent.
    let _ = client
        .write_all(format!("{head}{}", " ".repeat(bytes)).as_bytes())
        .await;
    client
}

pub(crate) async fn read_all(mut client: TcpStream) -> String {
    let mut seen = Vec::new();
    // A refused client that was still sending may see a reset after its response.
    while client.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {}
    String::from_utf8(seen).unwrap()
}

fn whole(bytes: usize) -> http::Request<bytes::Bytes> {
    post("/v1/completions", format!("{{{}}}", " ".repeat(bytes - 2)))
}

fn scarce(builder: &mut Builder) {
    builder.edge.bodies.bytes = 100_000;
    builder.edge.limits.body_grace = Duration::from_millis(300);
    builder.edge.limits.body_rate = 1 << 30;
}

#[tokio::test]
async fn half_sent_bodies_take_no_more_than_they_may_together_and_end() {
    let worker = Worker::named("answer").await;
    let router = router().worker("a", &worker.url()).with(scarce).start().await;
    assert_eq!(router.metric("conductor_body_bytes_limit"), 100_000.0);
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(half(router.address, 40_000).await);
        assert!(router.metric(HELD) <= 100_000.0);
    }
    let mut refused = 0;
    for client in clients {
        let answer = read_all(client).await;
        if answer.starts_with("HTTP/1.1 503 ") {
            assert!(
                answer.contains("bodies_full") && answer.contains("retry-after: 1"),
                "{answer}"
            );
            refused += 1;
        } else {
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
    }
    assert!(refused > 0);
    eventually("it is counted", || turned(&router, "bodies-full") > 0.0).await;
    assert!(router.metric(r#"conductor_requests_total{pool="",outcome="bodies-full"}"#) > 0.0);
    eventually("all is given back", || router.metric(HELD) == 0.0).await;
    assert_eq!(send(router.address, chat()).await.status, 200);
}

#[tokio::test]
async fn a_body_is_counted_while_its_request_is_under_way_and_a_new_limit_applies_at_once() {
    let worker = Worker::start(|request| async move {
        if request.body.len() == COUNT {
            pending::<()>().await;
        }
        crate::worker::json(200, "{}")
    })
    .await;
    let start = router().worker("a", &worker.url()).with(scarce);
    let patient = start.with(|builder| builder.edge.limits.body_grace = Duration::from_secs(60));
    let mut router = patient.clone().start().await;
    let mut clients = JoinSet::new();
    let address = router.address;
    clients.spawn(async move { send(address, whole(COUNT)).await });
    eventually("the first is held", || router.metric(HELD) == COUNT as f64).await;
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { send(address, whole(COUNT + 1)).await.status });
    eventually("the second waits", || {
        router.metric("conductor_client_connections") == 2.0
    })
    .await;
    assert!(waiting.try_join_next().is_none());
    router.change(patient.with(|builder| builder.edge.bodies.bytes = 1 << 20));
    assert_eq!(waiting.join_next().await.unwrap().unwrap(), 200);
    clients.shutdown().await;
    eventually("all is given back", || router.metric(HELD) == 0.0).await;
}

#[tokio::test]
async fn the_body_that_arrives_for_longest_gives_way_to_others() {
    let worker = Worker::named("answer").await;
    let few = |builder: &mut Builder| builder.edge.bodies.unfinished = 2;
    let router = router().worker("a", &worker.url()).with(few).start().await;
    let arriving = || router.metric("conductor_unfinished_bodies");
    let clock = StoppedClock::stop();
    let first = half(router.address, 1).await;
    eventually("it arrives", || arriving() == 1.0).await;
    let second = half(router.address, 1).await;
    eventually("two arrive", || arriving() == 2.0).await;
    let third = half(router.address, 1).await;
    eventually("a young body does not give way", || {
        turned(&router, "bodies-full") == 1.0
    })
    .await;
    clock.pass(Duration::from_secs(1)).await;
    let fourth = half(router.address, 1).await;
    eventually("the oldest gives way", || turned(&router, "body-evicted") == 1.0).await;
    clock.go_on();
    let answer = read_all(first).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    drop((second, third, fourth));
    eventually("none arrives", || {
        router.metric("conductor_unfinished_bodies") == 0.0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_sends_too_much_gets_to_read_the_refusal() {
    let worker = Worker::named("answer").await;
    let router = router().worker("a", &worker.url());
    let router = router
        .with(|builder| builder.limits.body_bytes = 1_000)
        .start()
        .await;
    let piece = " ".repeat(30_000);
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    for (path, framing, piece, end) in [
        ("/v1/completions", "content-length: 300000", &piece, ""),
        ("/tokenize", "content-length: 300000", &piece, ""),
        // The first read makes the router send `100 Continue`.
        (
            "/v1/completions",
            "expect: 100-continue\r\ntransfer-encoding: chunked",
            &chunk,
            "0\r\n\r\n",
        ),
    ] {
        let mut client = TcpStream::connect(router.address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: r\r\n{framing}\r\nconnection: close\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..10 {
            client.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client.write_all(end.as_bytes()).await.unwrap();
        let answer = timeout(PATIENCE, read_all(client)).await.unwrap();
        let answer = answer.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path} {framing}: {answer}");
    }
    assert_eq!(turned(&router, "body-too-large"), 3.0);
}

#[tokio::test]
async fn a_client_that_sends_too_slowly_gets_to_read_the_refusal() {
    let worker = Worker::named("answer").await;
    let router = router().worker("a", &worker.url()).with(scarce).start().await;
    let mut client = TcpStream::connect(router.address).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: r\r\nconnection: close\r\ncontent-length: 100\r\n\r\n";
    let clock = StoppedClock::stop();
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(b" ").await.unwrap();
    let arriving = || router.metric("conductor_unfinished_bodies");
    eventually("it arrives", || arriving() == 1.0).await;
    clock.pass(Duration::from_millis(400)).await;
    eventually("its time is over", || arriving() == 0.0).await;
    // A connection that is closed meanwhile resets it.
    for _ in 0..99 {
        client.write_all(b" ").await.unwrap();
        moment().await;
    }
    clock.go_on();
    let answer = timeout(PATIENCE, read_all(client)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}
