//! Tests of clients that do not read their responses within the request's time, and of workers that never send one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::client::{chat, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::router::{Builder, router};
use crate::worker::streaming;

const REQUEST: &str = concat!(
    "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\ncontent-length: 28\r\n\r\n",
    r#"{"model":"m","stream": true}"#
);

fn short(builder: &mut Builder) {
    builder.limits.request_timeout = Some(Duration::from_millis(300));
}

/// Waits until no more pieces are written, although every task has its turn again and again.
async fn all_buffers_are_full(pieces: &AtomicUsize) {
    let (mut before, mut turns) = (0, 0);
    eventually("all buffers are full", || {
        let now = pieces.load(Ordering::Relaxed);
        turns = if now == before { turns + 1 } else { 0 };
        before = now;
        now > 0 && turns > 200
    })
    .await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_keeps_nothing_beyond_the_requests_time() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).with(short).start().await;
    let clock = StoppedClock::stop();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut client = socket.connect(router.address).await.unwrap();
    client.write_all(REQUEST.as_bytes()).await.unwrap();
    let pen = pens.recv().await.unwrap();
    // The body exceeds all buffers on the way.
    let mut worker_side = JoinSet::new();
    let pieces = Arc::new(AtomicUsize::new(0));
    let written = Arc::clone(&pieces);
    worker_side.spawn(async move {
        let piece = Bytes::from(format!("data: {}\n\n", "x".repeat(64 << 10)));
        while pen.send(Ok(piece.clone())).await.is_ok() {
            written.fetch_add(1, Ordering::Relaxed);
        }
    });
    all_buffers_are_full(&pieces).await;
    clock.go_on();
    let mut taken = [0; 16];
    let mut reads = 0;
    eventually("the lease is given back", || {
        reads += usize::from(client.try_read(&mut taken).is_ok());
        reads > 0 && router.in_flight("a") == 0
    })
    .await;
    eventually("its connection is closed", || {
        router.metric(r#"conductor_edge_turned_away_total{reason="overdue"}"#) == 1.0
    })
    .await;
    assert_eq!(router.outcomes("request-timeout"), 1.0);
}

#[tokio::test]
async fn a_client_that_reads_gets_an_error_when_the_time_is_up() {
    let (worker, mut pens) = streaming().await;
    let router = router().worker("a", &worker.url()).with(short).start().await;
    let mut request = chat();
    *request.body_mut() = r#"{"model":"m","stream":true}"#.into();
    let clock = StoppedClock::stop();
    let (mut answer, pen) = tokio::join!(send(router.address, request), async {
        let pen = pens.recv().await.unwrap();
        pen.send(Ok("data: {}\n\n".into())).await.unwrap();
        pen
    });
    answer.piece().await.unwrap().unwrap();
    clock.go_on();
    assert!(answer.text().await.contains("request_timeout"));
    assert_eq!(
        router.metric(r#"conductor_edge_turned_away_total{reason="overdue"}"#),
        0.0
    );
    drop(pen);
}

#[tokio::test]
async fn a_worker_that_sends_continue_without_end_holds_no_request_beyond_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut worker_side = JoinSet::new();
    worker_side.spawn(async move {
        let hints = "HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n".repeat(1_000);
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The router's connection check sends nothing.
            let has_request = stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0);
            while has_request && stream.write_all(hints.as_bytes()).await.is_ok() {}
        }
    });
    let router = router().worker("a", &url).with(short).start().await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, 504);
    assert!(answer.text().await.contains("request_timeout"));
}
