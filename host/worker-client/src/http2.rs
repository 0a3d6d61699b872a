//! Shared HTTP/2 connections: each carries many requests at a time, and its own task moves their bytes.
//!
//! Memory that a worker can make the router hold per connection is bounded: [`CONNECTION_WINDOW`] bytes of responses,
//! [`SEND_BUFFER`] bytes of a request for each of at most [`MAX_STREAMS`] streams, and [`HEADER_LIST`] bytes per
//! response head.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Parts, PathAndQuery};
use http::{Request, Response, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::address::Origin;
use crate::permit::ConnectionPermit;
use crate::tasks;
use crate::tls::Stream;

/// Maximum concurrent requests of a connection, unless the worker allows fewer. Further requests open another
/// connection.
const MAX_STREAMS: usize = 100;
/// Flow-control window of one response, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;
/// Flow-control window of all responses of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Buffered bytes of a request that wait for the worker's window.
const SEND_BUFFER: usize = 256 << 10;
/// Maximum size of a response head, counted as in RFC 9113, section 6.5.2.
const HEADER_LIST: u32 = 64 << 10;
/// Silence on a connection with open streams after which a PING is sent.
const PING_AFTER: Duration = Duration::from_secs(30);
/// Time to wait for the PING's acknowledgement before the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// HTTP/2 connection. After the pool drops it, its task ends with its last stream.
#[derive(Debug)]
pub(super) struct SharedConnection {
    sender: SendRequest<Full<Bytes>>,
    origin: Origin,
    opened_at: Instant,
    /// Address of the worker that accepted it.
    peer: IpAddr,
    /// Counter of the pool's open connections.
    open: Arc<AtomicUsize>,
    _driver: tasks::TaskGuard,
}

/// Slot for one request on a shared connection. Dropping it before the response has ended resets the stream.
#[derive(Debug)]
pub(crate) struct SharedStream {
    connection: Arc<SharedConnection>,
    /// Held while the stream is in use.
    _permit: ConnectionPermit,
}

impl SharedConnection {
    /// Starts HTTP/2 on a stream.
    pub(super) async fn handshake(
        stream: Stream,
        peer: IpAddr,
        origin: Origin,
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
                debug!(error, "HTTP/2 connection to a worker ended early");
            }
        };
        Ok(Arc::new(Self {
            sender,
            origin,
            opened_at: Instant::now(),
            peer,
            open,
            // The driver ends with the connection, which the pool keeps.
            _driver: tasks::spawn_guarded(&TaskTracker::new(), "http2", driver),
        }))
    }

    /// Returns the time at which it was opened.
    pub(super) fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Returns whether it accepts further requests.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns the number of its open streams. The pool itself holds one reference.
    pub(super) fn stream_count(connection: &Arc<Self>) -> usize {
        Arc::strong_count(connection) - 1
    }

    /// Reserves a stream, unless all are in use.
    pub(super) fn reserve(connection: &Arc<Self>, permit: &mut ConnectionPermit) -> Option<SharedStream> {
        let has_room = Self::stream_count(connection) < MAX_STREAMS && connection.sender.is_ready();
        has_room.then(|| Self::first_stream(connection, permit))
    }

    /// Returns the stream of the request for which the connection was opened.
    pub(super) fn first_stream(connection: &Arc<Self>, permit: &mut ConnectionPermit) -> SharedStream {
        SharedStream {
            connection: Arc::clone(connection),
            _permit: permit.take(),
        }
    }

    /// Rewrites a request for HTTP/2: the worker's scheme and authority replace `Host`.
    fn with_origin(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let target = request.uri().path_and_query().cloned();
        let mut parts = Parts::default();
        parts.scheme = Some(self.origin.scheme.clone());
        parts.authority = Some(self.origin.authority.clone());
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
    /// Returns the worker's address.
    pub(super) fn peer(&self) -> IpAddr {
        self.connection.peer
    }

    /// Sends a request and waits for the response head.
    pub(super) async fn send(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Self), hyper::Error> {
        let request = self.connection.with_origin(request);
        let mut sender = self.connection.sender.clone();
        let mut response = sender.send_request(request).await?;
        // The relay and the client's side handle HTTP/1.1 responses.
        *response.version_mut() = Version::HTTP_11;
        Ok((response, self))
    }
}
