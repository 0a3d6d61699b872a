//! Which connections are kept, and how many may be in use.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;

const SOON: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);

/// A worker that answers whatever it reads.
async fn worker() -> (Upstream, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(answer_all(stream));
        }
    });
    (Upstream::new(&url).unwrap(), serving)
}

async fn answer_all(mut stream: TcpStream) {
    let mut heard = [0; 1 << 10];
    while stream.read(&mut heard).await.is_ok_and(|read| read > 0) {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn configure(upstream: &Upstream, adjust: impl FnOnce(&mut ConnectionsSpec)) {
    let mut spec = ConnectionsSpec::default();
    adjust(&mut spec);
    upstream.configure(&spec, &HeaderValue::from_static("1.1 test"));
}

async fn answer(upstream: &Upstream) -> WorkerBody {
    let seat = upstream.seat(LONG).await.unwrap();
    let connection = upstream.connect(seat, LONG).await.unwrap();
    let request = Request::builder()
        .header("host", "a")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut body = connection.send(request).await.unwrap().into_body();
    while body.frame().await.is_some() {}
    body
}

#[tokio::test]
async fn no_more_connections_are_in_use_than_may_be() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.most = Some(1));
    let busy = answer(&upstream).await;
    let refused = upstream.seat(SOON).await.unwrap_err();
    assert!(matches!(refused, ConnectError::NoRoom { .. }), "{refused}");
    upstream.checkin(busy);
    let mut seat = upstream.seat(LONG).await.unwrap();
    let again = upstream.checkout(&mut seat).expect("it was kept");
    assert!(upstream.seat(SOON).await.is_err());
    drop(again);
    assert!(upstream.seat(LONG).await.unwrap().is_some());
}

#[tokio::test]
async fn so_many_connections_are_kept_as_may_be_idle() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.idle = 1);
    let (one, other) = (answer(&upstream).await, answer(&upstream).await);
    upstream.checkin(one);
    upstream.checkin(other);
    assert_eq!(upstream.open(), 1);
    configure(&upstream, |spec| spec.idle = 0);
    upstream.checkin(answer(&upstream).await);
    assert_eq!(upstream.open(), 0);
}

/// What is kept after an exchange, and a change of what may be.
async fn kept(adjust: impl FnOnce(&mut ConnectionsSpec)) -> (Upstream, JoinSet<()>) {
    let (upstream, serving) = worker().await;
    configure(&upstream, |_| {});
    upstream.checkin(answer(&upstream).await);
    assert_eq!(upstream.open(), 1);
    configure(&upstream, adjust);
    (upstream, serving)
}

#[tokio::test]
async fn what_was_kept_for_too_long_is_not_taken() {
    let (old, _serving) = kept(|spec| spec.age = Duration::ZERO).await;
    assert!(old.checkout(&mut None).is_none());
    let (unused, _serving) = kept(|spec| spec.idle_for = Duration::ZERO).await;
    assert!(unused.checkout(&mut None).is_none());
    assert_eq!((old.open(), unused.open()), (0, 0));
}

#[tokio::test]
async fn what_nobody_is_to_use_again_is_closed_although_nobody_asks() {
    let (unused, _serving) = kept(|spec| spec.idle_for = LONG).await;
    unused.trim(Instant::now());
    assert_eq!(unused.open(), 1);
    unused.trim(Instant::now() + 2 * LONG);
    assert_eq!(unused.open(), 0);

    let (hung_up_on, mut serving) = kept(|_| {}).await;
    serving.shutdown().await;
    while hung_up_on.open() > 0 {
        hung_up_on.trim(Instant::now());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_that_is_too_old_is_not_used_again() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.age = Duration::ZERO);
    upstream.checkin(answer(&upstream).await);
    assert_eq!(upstream.open(), 0);
}
