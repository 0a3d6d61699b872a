//! Connections to one worker: opened as needed, kept while they may serve again, closed by being dropped.
//!
//! HTTP/1.1 with hyper's bare connections. A general-purpose client would look up its pool by name, rewrite the
//! URI and copy the headers for every request, and run each connection in a task of its own: two more task
//! switches for every chunk of a stream. Here a request takes one short lock, and its own task moves the bytes.
//! A kept connection is therefore looked at only when it is taken again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::{Scheme, Uri};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;

/// Idle connections kept for one worker; beyond that the oldest is closed.
const MOST_IDLE: usize = 512;
/// An idle connection older than this is closed at the next return of another.
const IDLE_AT_MOST: Duration = Duration::from_secs(60);

/// A worker's URL is not one that can be connected to.
#[derive(Debug, Error)]
pub enum UrlError {
    /// Not a URL at all.
    #[error("parse worker URL `{url}`")]
    Unreadable {
        /// As configured.
        url: Box<str>,
        /// What is wrong with it.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// A URL, but not of the form `http://host:port`.
    #[error("use worker URL `{url}`: it must have the form `http://host:port`")]
    Unsupported {
        /// As configured.
        url: Box<str>,
    },
}

/// A connection could not be opened.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    #[error("connect to `{address}`")]
    Io {
        address: Box<str>,
        #[source]
        source: io::Error,
    },
    #[error("connect to `{address}` within {limit:?}")]
    Timeout { address: Box<str>, limit: Duration },
    #[error("begin HTTP with `{address}`")]
    Handshake {
        address: Box<str>,
        #[source]
        source: hyper::Error,
    },
}

/// One worker's connections.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// `host:port`.
    address: Box<str>,
    host: HeaderValue,
    /// Newest at the back, where they are taken from: those in front grow old and go.
    idle: Mutex<VecDeque<Idle>>,
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// One connection, for one request at a time, driven by whoever uses it. Dropping it closes the socket at once,
/// whatever is under way on it: that is how a worker learns that a client left.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// None once it has ended.
    driver: Option<Pin<Box<Driver>>>,
    /// Counted while it lives.
    open: Arc<AtomicUsize>,
}

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// The body of a worker's answer, with the connection it comes on.
#[derive(Debug)]
pub(crate) struct WorkerBody {
    incoming: Incoming,
    connection: Connection,
    /// Read already, to see what it is.
    ahead: Option<Frame<Bytes>>,
}

impl Upstream {
    pub(crate) fn new(url: &str) -> Result<Self, UrlError> {
        let uri: Uri = url.parse().map_err(|source| UrlError::Unreadable {
            url: url.into(),
            source,
        })?;
        let unsupported = || UrlError::Unsupported { url: url.into() };
        if uri.scheme() != Some(&Scheme::HTTP) || !matches!(uri.path(), "" | "/") {
            return Err(unsupported());
        }
        let host = uri.host().ok_or_else(unsupported)?;
        let authority = uri.authority().ok_or_else(unsupported)?.as_str();
        Ok(Self {
            address: format!("{host}:{}", uri.port_u16().unwrap_or(80)).into(),
            host: HeaderValue::from_str(authority).map_err(|_| unsupported())?,
            idle: Mutex::default(),
            open: Arc::default(),
        })
    }

    /// The `Host` of requests.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Connections open now, idle or not.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A kept connection that is ready. It may still turn out to have been closed by the worker meanwhile.
    pub(crate) fn checkout(&self) -> Option<Connection> {
        loop {
            let kept = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_back();
            let mut connection = kept?.connection;
            // Nobody has looked at it since it was kept.
            connection.drive(&mut Context::from_waker(Waker::noop()));
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
    }

    /// Keeps the connection of an answer that was read to its end.
    pub(crate) fn checkin(&self, answer: WorkerBody) {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let aged = |kept: &Idle| now.duration_since(kept.since) > IDLE_AT_MOST;
        while idle.len() >= MOST_IDLE || idle.front().is_some_and(aged) {
            idle.pop_front();
        }
        idle.push_back(Idle {
            connection: answer.connection,
            since: now,
        });
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Connection, ConnectError> {
        let address = || self.address.clone();
        let io_error = |source| ConnectError::Io {
            address: address(),
            source,
        };
        let stream = tokio::time::timeout(limit, TcpStream::connect(&*self.address))
            .await
            .map_err(|_| ConnectError::Timeout {
                address: address(),
                limit,
            })?
            .map_err(io_error)?;
        stream.set_nodelay(true).map_err(io_error)?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|source| ConnectError::Handshake {
                    address: address(),
                    source,
                })?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Connection {
            sender,
            driver: Some(Box::pin(driver)),
            open: Arc::clone(&self.open),
        })
    }
}

impl Connection {
    /// Sends a request and waits for its answer's head.
    pub(crate) async fn send(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        let mut answer = pin!(self.sender.send_request(request));
        let driver = &mut self.driver;
        let answer = poll_fn(|cx| {
            drive(driver, cx);
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let (head, incoming) = answer.await?.into_parts();
        let body = WorkerBody {
            incoming,
            connection: self,
            ahead: None,
        };
        Ok(Response::from_parts(head, body))
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.driver, cx);
    }
}

/// Moves bytes between the socket and the halves that hyper hands out. Those halves are polled right after, with a
/// waker that does nothing: all they can wait for is this.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    // How it ended is told to the request on it, if there is one.
    if driver
        .as_mut()
        .is_some_and(|driver| driver.as_mut().poll(cx).is_ready())
    {
        *driver = None;
    }
}

impl WorkerBody {
    /// Waits for the first data of the body, which stays in it; none where it has none.
    pub(crate) async fn first(&mut self) -> Result<Option<&Bytes>, hyper::Error> {
        if self.ahead.is_none() {
            self.ahead = self.frame().await.transpose()?;
        }
        Ok(self.ahead.as_ref().and_then(Frame::data_ref))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Body for WorkerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = self.get_mut();
        if let Some(frame) = body.ahead.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(frame) = Pin::new(&mut body.incoming).poll_frame(&mut nobody) {
            return Poll::Ready(frame);
        }
        body.connection.drive(cx);
        Pin::new(&mut body.incoming).poll_frame(&mut nobody)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let Some(data) = self.ahead.as_ref().and_then(Frame::data_ref) {
            let ahead = data.len() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + ahead);
            }
            hint.set_lower(hint.lower() + ahead);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<(&str, &str)>) {
        let upstream = Upstream::new(url).ok();
        let parts = upstream
            .as_ref()
            .map(|upstream| (&*upstream.address, upstream.host.to_str().unwrap()));
        assert_eq!(parts, expected, "{url}");
    }

    #[test]
    fn a_worker_url_is_plain_http_to_a_host() {
        check(
            "http://127.0.0.1:8000",
            Some(("127.0.0.1:8000", "127.0.0.1:8000")),
        );
        check("http://engine", Some(("engine:80", "engine")));
        check("http://[::1]:9", Some(("[::1]:9", "[::1]:9")));
        for bad in ["https://a:1", "http://a:1/v1", "a:1", "", "http://"] {
            check(bad, None);
        }
    }
}
