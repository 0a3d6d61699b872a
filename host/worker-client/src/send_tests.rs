//! Tests of requests that fail on a kept connection.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::authorization::Authorization;
use crate::connection::WorkerBody;
use crate::pool::{ConnectionPool, ConnectionsSpec};
use crate::send::{ConnectionReuse, KeptFailure, OutgoingRequest, STALE_WITHIN, SendError, SendTimeouts};

const LONG: Duration = Duration::from_secs(20);
const REUSES: [ConnectionReuse; 2] = [ConnectionReuse::WithRetry, ConnectionReuse::Once];

/// Starts a worker that handles each connection so.
async fn worker<F>(
    http2: bool,
    handle: impl Fn(TcpStream) -> F + Send + 'static,
) -> (ConnectionPool, JoinSet<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(handle(stream));
        }
    });
    let pool = ConnectionPool::new(&url).unwrap();
    let spec = ConnectionsSpec {
        http2,
        ..ConnectionsSpec::default()
    };
    pool.configure(&spec, &HeaderValue::from_static("1.1 test"));
    (pool, serving)
}

/// Answers the first stream of an HTTP/2 connection, and resets the others.
async fn reset_streams(stream: TcpStream, reason: Reason) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut is_first = true;
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        if std::mem::take(&mut is_first) {
            respond.send_response(Response::new(()), true).unwrap();
        } else {
            respond.send_reset(reason);
        }
    }
}

/// Answers the first request of an HTTP/1.1 connection, and closes the connection that long after the second.
async fn close_after(mut stream: TcpStream, pause: Duration) {
    let mut buffer = [0; 1 << 10];
    if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer).await.unwrap();
        let _ = stream.read(&mut buffer).await;
        tokio::time::sleep(pause).await;
    }
}

/// Sends a request, and returns the status of its answer.
async fn send(pool: &ConnectionPool, reuse: ConnectionReuse) -> Result<StatusCode, SendError> {
    let request = OutgoingRequest {
        method: &Method::POST,
        target: &PathAndQuery::from_static("/"),
        headers: &HeaderMap::new(),
        authorization: &Authorization::Pass,
        rank: None,
        body: &Bytes::new(),
        traceparent: None,
        reuse,
    };
    let limits = SendTimeouts {
        connect: LONG,
        first_byte: LONG,
    };
    let (head, mut body): (_, WorkerBody) = pool.forward(request, limits).await?.into_parts();
    while body.frame().await.is_some() {}
    pool.checkin(body);
    Ok(head.status)
}

#[tokio::test]
async fn a_stream_that_is_reset_on_a_kept_connection_is_the_workers_failure() {
    for reuse in REUSES {
        let (pool, _serving) = worker(true, |stream| reset_streams(stream, Reason::INTERNAL_ERROR)).await;
        assert_eq!(send(&pool, reuse).await.unwrap(), StatusCode::OK);
        let error = send(&pool, reuse).await.unwrap_err();
        assert!(matches!(error, SendError::Closed(Some(_))), "{reuse:?}: {error}");
        assert_eq!(
            pool.open_connections(),
            1,
            "it is not sent again, and the connection stays"
        );
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_unprocessed_is_sent_on_a_fresh_connection() {
    for reuse in REUSES {
        let (pool, _serving) = worker(true, |stream| reset_streams(stream, Reason::REFUSED_STREAM)).await;
        assert_eq!(send(&pool, reuse).await.unwrap(), StatusCode::OK);
        assert_eq!(send(&pool, reuse).await.unwrap(), StatusCode::OK);
        assert_eq!(pool.open_connections(), 2, "{reuse:?}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_is_closed_later_is_the_workers_failure() {
    for reuse in REUSES {
        let (pool, _serving) = worker(false, |stream| close_after(stream, STALE_WITHIN)).await;
        assert_eq!(send(&pool, reuse).await.unwrap(), StatusCode::OK);
        let error = send(&pool, reuse).await.unwrap_err();
        let SendError::Closed(Some(error)) = error else {
            panic!("{reuse:?}: {error}");
        };
        assert_eq!(KeptFailure::of(&error, STALE_WITHIN), KeptFailure::OfTheRequest);
        assert_eq!(KeptFailure::of(&error, Duration::ZERO), KeptFailure::Stale);
    }
}

/// Sends two requests to a worker whose process ends at the second one. Returns its pool, with the error.
async fn crash() -> (ConnectionPool, SendError) {
    // Keeps the port, so that nothing else listens there.
    let kept = TcpSocket::new_v4().unwrap();
    kept.set_reuseaddr(true).unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = kept.local_addr().unwrap();
    let listener = TcpListener::bind(address).await.unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1 << 10];
        let _ = stream.read(&mut buffer).await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        stream.write_all(answer).await.unwrap();
        let _ = stream.read(&mut buffer).await;
        drop(listener);
    });
    let pool = ConnectionPool::new(&format!("http://{address}")).unwrap();
    assert_eq!(
        send(&pool, ConnectionReuse::WithRetry).await.unwrap(),
        StatusCode::OK
    );
    assert!(!pool.take_refused());
    let error = send(&pool, ConnectionReuse::WithRetry).await.unwrap_err();
    (pool, error)
}

#[tokio::test]
async fn a_crash_on_a_kept_connection_shows_once_that_the_worker_refuses_connections() {
    loop {
        let began = Instant::now();
        let (pool, error) = crash().await;
        assert!(matches!(error, SendError::Closed(Some(_))), "{error}");
        // On a slow machine the crash may count as the request's, which is not sent again.
        if began.elapsed() < STALE_WITHIN {
            assert!(pool.take_refused());
            assert!(!pool.take_refused());
            return;
        }
    }
}
