//! Tests of health, readiness, and connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{get, send};
use crate::eventually;
use crate::log::Log;
use crate::router::{Builder, router};
use crate::worker::Worker;

#[tokio::test]
async fn health_is_always_good_and_readiness_has_a_reason() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).start().await;
    assert_eq!(send(router.address, get("/health")).await.status, 200);
    let check = async |status: u16, expected: &str| {
        let answer = send(router.address, get("/readyz")).await;
        assert_eq!(answer.status, status);
        let text = answer.text().await;
        assert!(text.contains(expected), "{text}");
        assert!(
            text.contains(r#""pools":{"main":{"in_service":1,"workers":1}}"#),
            "{text}"
        );
    };
    check(503, r#""ready":false,"reason":"starting""#).await;
    router.readiness.mark_ready();
    check(200, r#""ready":true"#).await;
    router.readiness.mark_draining();
    check(503, r#""ready":false,"reason":"draining""#).await;
    assert_eq!(send(router.address, get("/health")).await.status, 200);
}

#[tokio::test]
async fn connections_are_refused_only_after_the_drain_was_announced() {
    let router = router().start().await;
    router.readiness.mark_ready();
    router.shut_down();
    while TcpStream::connect(router.address).await.is_ok() {}
    assert_eq!(router.readiness.objection(), Some("draining"));
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let worker = Worker::named("answer").await;
    let router = router().worker("a", &worker.url()).start().await;
    let mut stream = TcpStream::connect(router.address).await.unwrap();
    let request = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\n\r\n{}";
    for _ in 0..3 {
        stream.write_all(request).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"answer") {
            assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0, "closed early");
        }
        assert!(seen.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    assert_eq!(worker.connections(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_by_a_drain() {
    let router = router().start().await;
    let mut stream = TcpStream::connect(router.address).await.unwrap();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: r\r\n\r\n")
        .await
        .unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        stream.read_buf(&mut seen).await.unwrap();
    }
    router.shut_down();
    assert_eq!(stream.read_buf(&mut seen).await.unwrap(), 0);
    assert_eq!(router.ended().await.cut, 0);
}

#[tokio::test]
async fn at_the_limit_a_connection_waits_and_the_log_has_the_reason() {
    let log = Log::begin();
    let router = router().with(|builder| builder.max_connections = 1).start().await;
    let connected = || router.metric("conductor_client_connections");
    let first = TcpStream::connect(router.address).await.unwrap();
    eventually("one is connected", || connected() == 1.0).await;
    assert_eq!(router.metric("conductor_client_connections_limit"), 1.0);
    let mut second = TcpStream::connect(router.address).await.unwrap();
    let request = b"GET /version HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n";
    second.write_all(request).await.unwrap();
    let warned = || log.lines("server.max-connections");
    eventually("the limit is reported", || !warned().is_empty()).await;
    assert!(warned()[0].contains("limit=1 "), "{:?}", warned());
    assert_eq!(connected(), 1.0, "no client has a slot beyond the limit");
    drop(first);
    let mut seen = Vec::new();
    second.read_to_end(&mut seen).await.unwrap();
    assert!(seen.starts_with(b"HTTP/1.1 200 OK\r\n"));
    eventually("all have left", || connected() == 0.0).await;
}

#[tokio::test]
async fn for_a_while_a_drain_is_announced_and_requests_are_still_taken() {
    let router = router()
        .with(|builder| builder.delay = Duration::from_secs(3_600))
        .start()
        .await;
    router.readiness.mark_ready();
    router.shut_down();
    eventually("the drain is reported", || {
        router.readiness.objection() == Some("draining")
    })
    .await;
    assert_eq!(send(router.address, get("/readyz")).await.status, 503);
    assert_eq!(send(router.address, get("/health")).await.status, 200);
}

#[tokio::test]
async fn an_answer_not_begun_when_the_drain_is_over_is_an_error() {
    let worker = Worker::start(|_| std::future::pending()).await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| builder.drain = Duration::from_millis(50))
        .start()
        .await;
    let mut stream = TcpStream::connect(router.address).await.unwrap();
    let request = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(request).await.unwrap();
    eventually("it is under way", || router.in_flight("a") == 1).await;
    router.shut_down();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 503 "), "{seen}");
    assert!(seen.contains("\"code\":\"shutting_down\""), "{seen}");
    assert_eq!(router.ended().await.cut, 1);
}

/// Opens a connection whose request is never complete, so that it is always busy.
async fn busy(router: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(router).await.unwrap();
    let head = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 9\r\n\r\n{";
    client.write_all(head).await.unwrap();
    client
}

#[tokio::test]
async fn health_is_answered_although_every_connection_is_taken() {
    let router = router().with(|builder| builder.max_connections = 4).start().await;
    let mut attackers = Vec::new();
    // The number exceeds the overflow area.
    for _ in 0..100 {
        attackers.push(busy(router.address).await);
    }
    for path in ["/health", "/readyz"] {
        let status = send(router.address, get(path)).await.status;
        assert!(status == 200 || status == 503, "{path}: {status}");
    }
    let turned = |reason| {
        router.metric(&format!(
            "conductor_edge_turned_away_total{{reason=\"{reason}\"}}"
        ))
    };
    eventually("a client that waited for a slot gets an answer", || {
        turned("connections-full") > 0.0
    })
    .await;
    assert_eq!(router.metric("conductor_client_connections"), 4.0);
    let mut refused = 0;
    for client in &mut attackers[4..12] {
        let mut seen = Vec::with_capacity(4 << 10);
        let read = client.read_buf(&mut seen);
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(100), read).await {
            refused += usize::from(seen.starts_with(b"HTTP/1.1 503 "));
        }
    }
    assert!(refused > 0, "the first waiting clients get a 503");
}

#[tokio::test]
async fn one_address_has_no_more_connections_than_it_may() {
    let few = |builder: &mut Builder| builder.edge.per_address = Some(2);
    let router = router().with(few).start().await;
    let clients = [busy(router.address).await, busy(router.address).await];
    eventually("both are connected", || {
        router.metric("conductor_client_connections") == 2.0
    })
    .await;
    let mut third = TcpStream::connect(router.address).await.unwrap();
    let closed = third.read(&mut [0; 16]).await;
    assert!(!closed.is_ok_and(|read| read > 0), "it is closed without a word");
    let full = r#"conductor_edge_turned_away_total{reason="address-full"}"#;
    assert_eq!(router.metric(full), 1.0);
    drop(clients);
    eventually("they have left", || {
        router.metric("conductor_client_connections") == 0.0
    })
    .await;
    assert_eq!(send(router.address, get("/version")).await.status, 200);
}
