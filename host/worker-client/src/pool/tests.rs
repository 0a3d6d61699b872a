//! Tests of connection reuse and of the limit of connections in use.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::authorization::Authorization;
use crate::send::{ConnectionReuse, OutgoingRequest, SendTimeouts};
use crate::tls::trusting_none;

const SOON: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);

/// Starts a worker that answers everything it reads.
async fn worker() -> (ConnectionPool, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(respond_to_all(stream));
        }
    });
    (ConnectionPool::new(&url).unwrap(), serving)
}

async fn respond_to_all(mut stream: TcpStream) {
    let mut buffer = [0; 1 << 10];
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn configure(upstream: &ConnectionPool, adjust: impl FnOnce(&mut ConnectionsSpec)) {
    let mut spec = ConnectionsSpec::default();
    adjust(&mut spec);
    upstream.configure(&spec, &HeaderValue::from_static("1.1 test"));
}

async fn response(upstream: &ConnectionPool) -> WorkerBody {
    let permit = upstream.acquire(LONG).await.unwrap();
    let connection = upstream.connect(permit, LONG).await.unwrap();
    let request = Request::builder()
        .header("host", "a")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut body = connection.send(request).await.unwrap().into_body();
    while body.frame().await.is_some() {}
    body
}

#[tokio::test]
async fn a_request_that_must_not_reuse_a_connection_opens_one() {
    let (upstream, _serving) = worker().await;
    let target = http::uri::PathAndQuery::from_static("/");
    let (headers, body) = (http::HeaderMap::new(), Bytes::new());
    for (reuse, open) in [
        (ConnectionReuse::WithRetry, 1),
        (ConnectionReuse::Once, 1),
        (ConnectionReuse::Never, 2),
    ] {
        let request = OutgoingRequest {
            method: &http::Method::GET,
            target: &target,
            headers: &headers,
            authorization: &Authorization::Pass,
            rank: None,
            body: &body,
            traceparent: None,
            reuse,
        };
        let limits = SendTimeouts {
            connect: LONG,
            first_byte: LONG,
        };
        let mut body = upstream.forward(request, limits).await.unwrap().into_body();
        while body.frame().await.is_some() {}
        assert_eq!(upstream.open_connections(), open, "{reuse:?}");
        upstream.checkin(body);
    }
}

#[tokio::test]
async fn connections_in_use_stay_within_the_limit() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.most = Some(1));
    let busy = response(&upstream).await;
    let refused = upstream.acquire(SOON).await.unwrap_err();
    assert!(matches!(refused, ConnectError::NoPermit { .. }), "{refused}");
    upstream.checkin(busy);
    let mut permit = upstream.acquire(LONG).await.unwrap();
    let again = upstream.checkout(&mut permit).expect("it was kept");
    assert!(upstream.acquire(SOON).await.is_err());
    drop(again);
    assert!(upstream.acquire(LONG).await.unwrap().is_some());
}

#[tokio::test]
async fn connections_in_use_count_under_a_limit_that_changed() {
    let (upstream, _serving) = worker().await;
    let most = |most| configure(&upstream, |spec| spec.most = Some(most));
    most(3);
    let mut busy = Vec::new();
    for _ in 0..3 {
        busy.push(upstream.acquire(LONG).await.unwrap());
    }
    most(1);
    // Two of three end, and one is in use, which is the limit.
    busy.truncate(1);
    assert!(upstream.acquire(SOON).await.is_err());
    most(2);
    busy.push(upstream.acquire(LONG).await.unwrap());
    assert!(upstream.acquire(SOON).await.is_err());
    busy.clear();
    let both = (
        upstream.acquire(LONG).await.unwrap(),
        upstream.acquire(LONG).await.unwrap(),
    );
    assert!(both.0.is_some() && both.1.is_some());
    assert!(upstream.acquire(SOON).await.is_err());
}

#[tokio::test]
async fn a_limit_that_rises_again_has_room_at_once() {
    let (upstream, _serving) = worker().await;
    let most = |most| configure(&upstream, |spec| spec.most = Some(most));
    most(2);
    let _busy = (
        upstream.acquire(LONG).await.unwrap(),
        upstream.acquire(LONG).await.unwrap(),
    );
    most(1);
    most(3);
    let _third = upstream.acquire(LONG).await.unwrap();
    assert!(upstream.acquire(SOON).await.is_err());
}

#[tokio::test]
async fn connections_in_use_without_a_limit_count_under_the_first_one() {
    let (upstream, _serving) = worker().await;
    let most = |most| configure(&upstream, |spec| spec.most = most);
    most(None);
    let mut busy = vec![
        upstream.acquire(LONG).await.unwrap(),
        upstream.acquire(LONG).await.unwrap(),
    ];
    most(Some(1));
    assert!(upstream.acquire(SOON).await.is_err());
    busy.pop();
    assert!(
        upstream.acquire(SOON).await.is_err(),
        "one is in use, which is the limit"
    );
    most(None);
    busy.push(upstream.acquire(LONG).await.unwrap());
    most(Some(2));
    assert!(upstream.acquire(SOON).await.is_err());
    busy.pop();
    busy.push(upstream.acquire(LONG).await.unwrap());
    assert!(upstream.acquire(SOON).await.is_err());
}

#[tokio::test]
async fn idle_connections_stay_within_the_limit() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.idle = 1);
    let (one, other) = (response(&upstream).await, response(&upstream).await);
    upstream.checkin(one);
    upstream.checkin(other);
    assert_eq!(upstream.open_connections(), 1);
    configure(&upstream, |spec| spec.idle = 0);
    upstream.checkin(response(&upstream).await);
    assert_eq!(upstream.open_connections(), 0);
}

/// Returns a pool with one idle connection whose configuration changed afterwards.
async fn kept(adjust: impl FnOnce(&mut ConnectionsSpec)) -> (ConnectionPool, JoinSet<()>) {
    let (upstream, serving) = worker().await;
    configure(&upstream, |_| {});
    upstream.checkin(response(&upstream).await);
    assert_eq!(upstream.open_connections(), 1);
    configure(&upstream, adjust);
    (upstream, serving)
}

#[tokio::test]
async fn connections_idle_for_too_long_are_not_reused() {
    let (old, _serving) = kept(|spec| spec.age = Duration::ZERO).await;
    assert!(old.checkout(&mut None).is_none());
    let (unused, _serving) = kept(|spec| spec.idle_for = Duration::ZERO).await;
    assert!(unused.checkout(&mut None).is_none());
    assert_eq!((old.open_connections(), unused.open_connections()), (0, 0));
}

#[tokio::test]
async fn trimming_closes_connections_that_cannot_be_reused() {
    let (unused, _serving) = kept(|spec| spec.idle_for = LONG).await;
    unused.trim(Instant::now());
    assert_eq!(unused.open_connections(), 1);
    unused.trim(Instant::now() + 2 * LONG);
    assert_eq!(unused.open_connections(), 0);

    let (closed_by_worker, mut serving) = kept(|_| {}).await;
    serving.shutdown().await;
    while closed_by_worker.open_connections() > 0 {
        closed_by_worker.trim(Instant::now());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn connections_beyond_their_maximum_age_are_not_reused() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.age = Duration::ZERO);
    upstream.checkin(response(&upstream).await);
    assert_eq!(upstream.open_connections(), 0);
}

#[tokio::test]
async fn a_connection_in_use_with_former_tls_settings_is_not_reused() {
    let (upstream, _serving) = worker().await;
    let tls = trusting_none();
    let busy = response(&upstream).await;
    configure(&upstream, |spec| spec.tls = Some(Arc::clone(&tls)));
    upstream.checkin(busy);
    assert_eq!(upstream.open_connections(), 0);
    let busy = response(&upstream).await;
    configure(&upstream, |spec| spec.tls = Some(tls));
    upstream.checkin(busy);
    assert_eq!(upstream.open_connections(), 1, "the settings are the same");
}

#[tokio::test]
async fn a_shared_connection_that_was_dialed_with_former_tls_settings_is_not_shared() {
    let (upstream, _serving) = worker().await;
    configure(&upstream, |spec| spec.http2 = true);
    let (early, version) = upstream.dial(LONG, true).await.unwrap();
    let (late, _) = upstream.dial(LONG, true).await.unwrap();
    drop(upstream.share(early, version, None).await.unwrap());
    assert_eq!(upstream.lock().shared.len(), 1);
    configure(&upstream, |spec| {
        spec.http2 = true;
        spec.tls = Some(trusting_none());
    });
    drop(upstream.share(late, version, None).await.unwrap());
    assert_eq!(upstream.lock().shared.len(), 0);
}
