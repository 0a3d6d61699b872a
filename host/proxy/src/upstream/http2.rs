//! Connections of HTTP/2 to a worker: each carries many requests at a time, and a task of its own moves their bytes.
//!
//! What a worker may make the router hold for one connection: [`CONNECTION_WINDOW`] bytes of answers, [`SEND_BUFFER`] bytes of
//! a request for each of at most [`MOST_STREAMS`] streams, and [`HEADER_LIST`] bytes for each head that arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::Seat;
use crate::tasks;
use crate::tls::Stream;

/// Requests that a connection carries at a time, unless the worker allows fewer; beyond them another one is opened.
const MOST_STREAMS: usize = 100;
/// Bytes of one answer that the worker may send before they are read.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same of all answers of a connection.
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Bytes of a request that wait for the worker's window.
const SEND_BUFFER: usize = 256 << 10;
/// Bytes of a head, as RFC 9113 (section 6.5.2) counts them.
const HEADER_LIST: u32 = 64 << 10;
/// A connection with streams on which nothing arrives for so long is sent a PING.
const PING_AFTER: Duration = Duration::from_secs(30);
/// It is closed where no answer comes for so long.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection. Its task ends with the last stream after it was let go.
#[derive(Debug)]
pub(super) struct SharedConnection {
    sender: SendRequest<Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    born: Instant,
    /// Counted while it lives.
    open: Arc<AtomicUsize>,
    _driver: tasks::Guard,
}

/// A place for one request on a connection. Dropped before its answer has ended, it resets the stream, which is how the
/// worker learns that the client left.
#[derive(Debug)]
pub(crate) struct SharedStream {
    connection: Arc<SharedConnection>,
    /// While it is in use, where that is limited.
    _seat: Seat,
}

impl SharedConnection {
    /// Begins HTTP/2 on a stream whose worker speaks it.
    pub(super) async fn begin(
        stream: Stream,
        (scheme, authority): (Scheme, Authority),
        open: Arc<AtomicUsize>,
    ) -> Result<Arc<Self>, hyper::Error> {
        let (sender, driver) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(HEADER_LIST)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await?;
        open.fetch_add(1, Ordering::Relaxed);
        let driver = async move {
            if let Err(error) = driver.await {
                let error = &error as &dyn std::error::Error;
                debug!(error, "an HTTP/2 connection to a worker ended early");
            }
        };
        Ok(Arc::new(Self {
            sender,
            scheme,
            authority,
            born: Instant::now(),
            open,
            // It ends with the connection, which the upstream keeps.
            _driver: tasks::spawn_guarded(&TaskTracker::new(), "http2", driver),
        }))
    }

    /// When it was opened.
    pub(super) fn born(&self) -> Instant {
        self.born
    }

    /// Whether requests may be sent on it.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// How many requests are on it, besides what the upstream itself keeps.
    pub(super) fn streams(connection: &Arc<Self>) -> usize {
        Arc::strong_count(connection) - 1
    }

    /// A place on it, unless it has none.
    pub(super) fn place(connection: &Arc<Self>, seat: &mut Seat) -> Option<SharedStream> {
        let has_room = Self::streams(connection) < MOST_STREAMS && connection.sender.is_ready();
        has_room.then(|| Self::first_place(connection, seat))
    }

    /// The place of the request that it was opened for.
    pub(super) fn first_place(connection: &Arc<Self>, seat: &mut Seat) -> SharedStream {
        SharedStream {
            connection: Arc::clone(connection),
            _seat: seat.take(),
        }
    }

    /// The request as HTTP/2 has it: with the worker's scheme and authority in place of `Host`.
    fn addressed(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let target = request.uri().path_and_query().cloned();
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(target.unwrap_or(PathAndQuery::from_static("/")));
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        request.headers_mut().remove(HOST);
        *request.version_mut() = Version::HTTP_2;
        request
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedStream {
    /// Sends a request and waits for its answer's head.
    pub(super) async fn send(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Self), hyper::Error> {
        let request = self.connection.addressed(request);
        let mut sender = self.connection.sender.clone();
        let mut answer = sender.send_request(request).await?;
        // What the relay and the client's side know.
        *answer.version_mut() = Version::HTTP_11;
        Ok((answer, self))
    }
}
