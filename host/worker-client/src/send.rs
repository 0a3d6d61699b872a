//! Sending of one request to one worker, up to the response head.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE, VIA};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use thiserror::Error;
use tokio::time::timeout;

use crate::authorization::Authorization;
use crate::connection::{RequestChannel, WorkerBody};
use crate::dial::ConnectError;
use crate::permit::ConnectionPermit;
use crate::pool::ConnectionPool;

/// Header that pins a request to a data-parallel rank (vLLM).
pub const X_DATA_PARALLEL_RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// Header with the trace context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Time within which an idle connection that the worker had closed already fails.
pub(super) const STALE_WITHIN: Duration = Duration::from_millis(500);

/// Request to a worker. Its parts are the same for every worker.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingRequest<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path and query.
    pub target: &'a PathAndQuery,
    /// End-to-end headers.
    pub headers: &'a HeaderMap,
    /// Handling of `Authorization` among the headers.
    pub authorization: &'a Authorization,
    /// Data-parallel rank, if the worker's URL serves several.
    pub rank: Option<u16>,
    /// Whole body.
    pub body: &'a Bytes,
    /// Trace context that replaces that of the headers.
    pub traceparent: Option<&'a HeaderValue>,
    /// Connections that may carry it.
    pub reuse: ConnectionReuse,
}

/// Connections that may carry a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// A kept connection, and a fresh one if the kept one turns out to be closed.
    WithRetry,
    /// A kept connection, for a request that is not idempotent: it is not sent again if it can have arrived.
    Once,
    /// Fresh connections only. A worker that closes one has closed it because of this request.
    Never,
}

/// Time limits of the steps of a request.
#[derive(Debug, Clone, Copy)]
pub struct SendTimeouts {
    /// Limit for a permit, and again for opening a connection.
    pub connect: Duration,
    /// Limit from sending to the response head.
    pub first_byte: Duration,
}

/// Error of a request without a response. Nothing has reached the client, so another worker can be tried.
#[derive(Debug, Error)]
pub enum SendError {
    /// No connection could be opened.
    #[error(transparent)]
    Connect(ConnectError),
    /// The worker closed the connection before the first byte. The source is unknown where another front end sent the
    /// request.
    #[error("get an answer: the server closed the connection before its first byte")]
    Closed(#[source] Option<hyper::Error>),
    /// The worker closed a reused connection at once, and the request must not be sent again.
    #[error("get an answer: the server closed the kept connection")]
    KeptClosed(#[source] hyper::Error),
    /// No response began in time.
    #[error("get an answer within {0:?}")]
    FirstByteTimeout(Duration),
    /// The response head is malformed.
    #[error("read the answer's head")]
    BadAnswer(#[source] hyper::Error),
    /// The worker switched to another protocol without an upgrade request for it.
    #[error("get an answer: the server switched to a protocol that was not requested")]
    UnexpectedUpgrade,
    /// The response has two framings.
    #[error("read the answer's head: it has both Content-Length and Transfer-Encoding")]
    TwoFramings,
}

impl SendError {
    /// Returns whether the worker is not at fault.
    ///
    /// Servers close idle connections at any time, and the limit of connections in use is the router's own.
    #[must_use]
    pub fn is_blameless(&self) -> bool {
        matches!(
            self,
            Self::KeptClosed(_) | Self::Connect(ConnectError::NoPermit { .. })
        )
    }

    /// Returns whether another worker can be tried.
    ///
    /// Not after a first-byte timeout: the worker can be busy with the request, and the work would be done twice.
    #[must_use]
    pub fn may_go_elsewhere(&self) -> bool {
        !matches!(self, Self::FirstByteTimeout(_))
    }
}

impl ConnectionPool {
    /// Sends a client's request and waits for the response head.
    ///
    /// The response body owns the connection. Read to its end, it belongs in [`ConnectionPool::checkin`]; dropped
    /// earlier, it cancels the request.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn forward(
        &self,
        request: OutgoingRequest<'_>,
        timeouts: SendTimeouts,
    ) -> Result<Response<WorkerBody>, SendError> {
        send_with_retry(self, request, timeouts, PermitUse::Limited).await
    }

    /// Sends a request of the router's own, as [`Self::forward`] does, but without a connection permit.
    ///
    /// Health checks and scrapes therefore reach a worker whose permitted connections are all in use.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn query(
        &self,
        request: OutgoingRequest<'_>,
        timeouts: SendTimeouts,
    ) -> Result<Response<WorkerBody>, SendError> {
        send_with_retry(self, request, timeouts, PermitUse::Unlimited).await
    }
}

/// Relation of a request to the limit of connections in use.
#[derive(Debug, Clone, Copy)]
enum PermitUse {
    Limited,
    Unlimited,
}

impl PermitUse {
    async fn acquire(self, pool: &ConnectionPool, limit: Duration) -> Result<ConnectionPermit, SendError> {
        match self {
            Self::Limited => pool.acquire(limit).await.map_err(SendError::Connect),
            Self::Unlimited => Ok(None),
        }
    }
}

/// Sends on an idle connection first, and on a fresh one if the idle one turns out to be closed.
async fn send_with_retry(
    pool: &ConnectionPool,
    outgoing: OutgoingRequest<'_>,
    timeouts: SendTimeouts,
    permit_use: PermitUse,
) -> Result<Response<WorkerBody>, SendError> {
    let mut permit = permit_use.acquire(pool, timeouts.connect).await?;
    let is_exclusive = outgoing.headers.contains_key(UPGRADE);
    let kept = match outgoing.reuse {
        ConnectionReuse::Never => None,
        ConnectionReuse::WithRetry | ConnectionReuse::Once => checkout(pool, &mut permit, is_exclusive),
    };
    let mut closed = None;
    if let Some(kept) = kept {
        let sent = Instant::now();
        let error = match send(pool, kept, outgoing, timeouts.first_byte).await {
            Err(SendError::Closed(Some(error))) => error,
            response => return response.map(|response| connected(response, sent)),
        };
        match KeptFailure::of(&error, sent.elapsed()) {
            KeptFailure::Unprocessed => {}
            KeptFailure::Stale if outgoing.reuse == ConnectionReuse::Once => {
                return Err(SendError::KeptClosed(error));
            }
            KeptFailure::Stale => closed = Some(error),
            KeptFailure::OfTheRequest => return Err(SendError::Closed(Some(error))),
        }
    }
    if permit.is_none() {
        // No permit is needed, or the failed connection held it.
        permit = permit_use.acquire(pool, timeouts.connect).await?;
    }
    // Boxed: most requests find an open connection, and would carry this size.
    let fresh = match is_exclusive {
        true => Box::pin(pool.connect_exclusive(permit, timeouts.connect))
            .await
            .map(RequestChannel::Exclusive),
        false => Box::pin(pool.connect(permit, timeouts.connect)).await,
    };
    let fresh = fresh.map_err(|error| after_close(closed, error))?;
    let sent = Instant::now();
    let response = send(pool, fresh, outgoing, timeouts.first_byte).await?;
    Ok(connected(response, sent))
}

/// Meaning of a failure on a connection that was open already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptFailure {
    /// The worker has not processed the request. It may be sent again.
    Unprocessed,
    /// The worker closed the connection at once. Servers close idle connections at any time.
    Stale,
    /// The worker had the request, and its outcome is unknown.
    OfTheRequest,
}

impl KeptFailure {
    /// Classifies a failure that came that long after the request was sent.
    pub(super) fn of(error: &hyper::Error, after: Duration) -> Self {
        // A cancelled request was never sent.
        if error.is_canceled() {
            return Self::Unprocessed;
        }
        let source = std::error::Error::source(error);
        if let Some(error) = source.and_then(|source| source.downcast_ref::<h2::Error>()) {
            // RFC 9113, section 8.7. Only streams beyond the last one of a GOAWAY fail with it.
            let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            if is_refused || error.is_go_away() && error.is_remote() {
                return Self::Unprocessed;
            }
            // The connection is open, and its worker ended this request.
            if error.is_reset() {
                return Self::OfTheRequest;
            }
        }
        match after < STALE_WITHIN {
            true => Self::Stale,
            false => Self::OfTheRequest,
        }
    }
}

/// Returns the error of a worker that could not be reached. If it closed a kept connection on the request before, it
/// has probably ended because of it.
fn after_close(closed: Option<hyper::Error>, error: ConnectError) -> SendError {
    match closed {
        Some(closed) => SendError::Closed(Some(closed)),
        None => SendError::Connect(error),
    }
}

fn connected(mut response: Response<WorkerBody>, at: Instant) -> Response<WorkerBody> {
    response.body_mut().connected(at);
    response
}

/// Takes a channel that is open already. An upgrade request needs an exclusive connection.
fn checkout(
    pool: &ConnectionPool,
    permit: &mut ConnectionPermit,
    is_exclusive: bool,
) -> Option<RequestChannel> {
    match is_exclusive {
        true => pool.checkout_exclusive(permit).map(RequestChannel::Exclusive),
        false => pool.checkout(permit),
    }
}

async fn send(
    pool: &ConnectionPool,
    channel: RequestChannel,
    outgoing: OutgoingRequest<'_>,
    limit: Duration,
) -> Result<Response<WorkerBody>, SendError> {
    let request = build_request(pool, outgoing);
    // Set by the router only: a client's own is removed.
    let requested = request.headers().get(UPGRADE).cloned();
    // Pinned here: a future that is moved takes its size twice.
    let response = pin!(async {
        match (&requested, channel) {
            // Boxed: rare, and every request would carry its size.
            (Some(_), RequestChannel::Exclusive(connection)) => {
                Box::pin(connection.send_upgrade(request)).await
            }
            (_, channel) => channel.send(request).await,
        }
    });
    let response = timeout(limit, response)
        .await
        .map_err(|_| SendError::FirstByteTimeout(limit))?;
    let response = response.map_err(|error| {
        if error.is_parse() {
            SendError::BadAnswer(error)
        } else {
            SendError::Closed(Some(error))
        }
    })?;
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_upgraded && !is_same_protocol(requested.as_ref(), response.headers().get(UPGRADE)) {
        return Err(SendError::UnexpectedUpgrade);
    }
    if has_two_framings(response.headers()) {
        return Err(SendError::TwoFramings);
    }
    Ok(response)
}

/// Returns whether two readers can see different ends of a response (RFC 9112, section 6.3).
///
/// Hyper reads the chunks and keeps the length, which would reach the client.
fn has_two_framings(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

/// Returns whether the headers state exactly this length of a body, once.
#[must_use]
pub fn states_length(headers: &HeaderMap, length: usize) -> bool {
    let Some(stated) = headers.get(CONTENT_LENGTH) else {
        return false;
    };
    // The digits that are left, from the last one on.
    let mut rest = Some(length);
    let is_next = |&byte: &u8| {
        let Some(left) = rest else { return false };
        rest = (left >= 10).then_some(left / 10);
        byte == b'0' + (left % 10) as u8
    };
    let is_equal = stated.as_bytes().iter().rev().all(is_next) && rest.is_none();
    is_equal && headers.get_all(CONTENT_LENGTH).iter().count() == 1
}

/// Returns whether a worker switched to the requested protocol.
fn is_same_protocol(requested: Option<&HeaderValue>, given: Option<&HeaderValue>) -> bool {
    let requested = requested.map(HeaderValue::as_bytes);
    let given = given.map(HeaderValue::as_bytes);
    requested.is_some_and(|requested| given.is_some_and(|given| given.eq_ignore_ascii_case(requested)))
}

/// Builds the HTTP request with the worker's `Host`, the router's `Via` and the rank.
fn build_request(pool: &ConnectionPool, outgoing: OutgoingRequest<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = Uri::from(outgoing.target.clone());
    *request.headers_mut() = outgoing.headers.clone();
    // The body of a leg is not the client's.
    if !states_length(outgoing.headers, outgoing.body.len()) {
        request.headers_mut().remove(CONTENT_LENGTH);
    }
    outgoing.authorization.apply(request.headers_mut());
    request.headers_mut().insert(HOST, pool.host().clone());
    if let Some(via) = pool.via() {
        request.headers_mut().append(VIA, via.clone());
    }
    if let Some(parent) = outgoing.traceparent {
        request.headers_mut().insert(TRACEPARENT, parent.clone());
    }
    if let Some(rank) = outgoing.rank {
        request.headers_mut().insert(X_DATA_PARALLEL_RANK, rank.into());
    }
    request
}
