//! One request to one worker: up to the head of its answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE, VIA};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use thiserror::Error;
use tokio::time::timeout;

use crate::headers::X_DATA_PARALLEL_RANK;
use crate::label::FailureKind;
use crate::upstream::{Carrier, ConnectError, Seat, Upstream, WorkerBody};

/// A kept connection that the worker closed as it was idle turns out to be closed within this time.
const AT_ONCE: Duration = Duration::from_millis(500);

/// What is sent, the same to every worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a Method,
    pub(crate) target: &'a PathAndQuery,
    /// Without those of a connection.
    pub(crate) headers: &'a HeaderMap,
    /// The data-parallel rank that is to take it, where the URL is that of several.
    pub(crate) rank: Option<u16>,
    pub(crate) body: &'a Bytes,
    /// It means something once only: what may have arrived is not sent again.
    pub(crate) once: bool,
}

/// How long each step may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardLimits {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
}

/// No answer came. Nothing has reached the client, so another worker may be tried where that makes sense.
#[derive(Debug, Error)]
pub(crate) enum ForwardError {
    #[error("reach the worker")]
    Connect(#[source] ConnectError),
    #[error("get an answer: the worker closed the connection before its first byte")]
    Closed(#[source] hyper::Error),
    #[error("get an answer: the worker closed a connection that was kept open")]
    KeptClosed(#[source] hyper::Error),
    #[error("get an answer within {0:?}")]
    FirstByteTimeout(Duration),
    #[error("read the answer's head")]
    BadAnswer(#[source] hyper::Error),
    #[error("get an answer: the worker switched to a protocol that the request does not ask for")]
    Switched,
    #[error("read the answer's head: it has both Content-Length and Transfer-Encoding")]
    TwoFramings,
}

impl ForwardError {
    /// Whether it says nothing against the worker: servers close idle connections when they please, and how many may be
    /// in use is the router's own limit.
    pub(crate) fn is_blameless(&self) -> bool {
        matches!(
            self,
            Self::KeptClosed(_) | Self::Connect(ConnectError::NoRoom { .. })
        )
    }

    /// Whether another worker may be tried. Not for one that is slow to begin: it may be at work, and nobody
    /// would be helped by the same work twice.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        !matches!(self, Self::FirstByteTimeout(_))
    }

    pub(crate) fn kind(&self) -> FailureKind {
        match self {
            Self::Connect(_) => FailureKind::Connect,
            Self::Closed(_) | Self::KeptClosed(_) => FailureKind::Closed,
            Self::FirstByteTimeout(_) => FailureKind::FirstByteTimeout,
            Self::BadAnswer(_) | Self::Switched | Self::TwoFramings => FailureKind::BadAnswer,
        }
    }
}

/// Sends a client's request and waits for the answer's head. Its body holds the connection: read to its end, it is to be
/// given back to the upstream; dropped before, it cancels.
pub(crate) async fn forward(
    upstream: &Upstream,
    outgoing: Outgoing<'_>,
    limits: ForwardLimits,
) -> Result<Response<WorkerBody>, ForwardError> {
    exchange(upstream, outgoing, limits, Asker::Client).await
}

/// Asks a question of the router's own, as [`forward`]. It waits for no seat: however many connections requests may use, a
/// worker that is busy with them is still asked how it is.
pub(crate) async fn ask(
    upstream: &Upstream,
    outgoing: Outgoing<'_>,
    limits: ForwardLimits,
) -> Result<Response<WorkerBody>, ForwardError> {
    exchange(upstream, outgoing, limits, Asker::Router).await
}

/// Whose request it is.
#[derive(Debug, Clone, Copy)]
enum Asker {
    Client,
    Router,
}

impl Asker {
    async fn seat(self, upstream: &Upstream, limit: Duration) -> Result<Seat, ForwardError> {
        match self {
            Self::Client => upstream.seat(limit).await.map_err(ForwardError::Connect),
            Self::Router => Ok(None),
        }
    }
}

async fn exchange(
    upstream: &Upstream,
    outgoing: Outgoing<'_>,
    limits: ForwardLimits,
    asker: Asker,
) -> Result<Response<WorkerBody>, ForwardError> {
    let mut seat = asker.seat(upstream, limits.connect).await?;
    let is_own = outgoing.headers.contains_key(UPGRADE);
    if let Some(kept) = checkout(upstream, &mut seat, is_own) {
        let sent = Instant::now();
        match send(upstream, kept, outgoing, limits.first_byte).await {
            // One that is cancelled was never sent.
            Err(ForwardError::Closed(error)) if outgoing.once && !error.is_canceled() => {
                return Err(ForwardError::KeptClosed(error));
            }
            // Servers close idle connections when they please, also just now: a fresh one tells. One that was open for longer
            // had the request, and what became of it nobody knows.
            Err(ForwardError::Closed(error)) if error.is_canceled() || sent.elapsed() < AT_ONCE => {}
            answer => return answer,
        }
    }
    if seat.is_none() {
        // None is needed, or the connection that failed had it.
        seat = asker.seat(upstream, limits.connect).await?;
    }
    let fresh = match is_own {
        true => upstream.connect_own(seat, limits.connect).await.map(Carrier::Own),
        false => upstream.connect(seat, limits.connect).await,
    };
    let fresh = fresh.map_err(ForwardError::Connect)?;
    send(upstream, fresh, outgoing, limits.first_byte).await
}

/// What can carry a request now. One that asks for another protocol needs a connection of its own.
fn checkout(upstream: &Upstream, seat: &mut Seat, is_own: bool) -> Option<Carrier> {
    match is_own {
        true => upstream.checkout_own(seat).map(Carrier::Own),
        false => upstream.checkout(seat),
    }
}

async fn send(
    upstream: &Upstream,
    carrier: Carrier,
    outgoing: Outgoing<'_>,
    limit: Duration,
) -> Result<Response<WorkerBody>, ForwardError> {
    let request = request(upstream, outgoing);
    // The router sets it; a client's own is removed.
    let asked = request.headers().get(UPGRADE).cloned();
    let answer = async {
        match (&asked, carrier) {
            // On the heap: it is rare, and every request would carry its room.
            (Some(_), Carrier::Own(connection)) => Box::pin(connection.switch(request)).await,
            (_, carrier) => carrier.send(request).await,
        }
    };
    let answer = timeout(limit, answer)
        .await
        .map_err(|_| ForwardError::FirstByteTimeout(limit))?;
    let answer = answer.map_err(|error| {
        if error.is_parse() {
            ForwardError::BadAnswer(error)
        } else {
            ForwardError::Closed(error)
        }
    })?;
    let is_switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switched && !is_asked_for(asked.as_ref(), answer.headers().get(UPGRADE)) {
        return Err(ForwardError::Switched);
    }
    if is_framed_twice(answer.headers()) {
        return Err(ForwardError::TwoFramings);
    }
    Ok(answer)
}

/// Whether two readers may see different ends of an answer (RFC 9112, section 6.3): hyper reads the chunks and keeps the
/// length, which would stand in the answer to the client.
fn is_framed_twice(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

/// Whether a worker switches to the protocol that the request asks for.
fn is_asked_for(asked: Option<&HeaderValue>, given: Option<&HeaderValue>) -> bool {
    let asked = asked.map(HeaderValue::as_bytes);
    let given = given.map(HeaderValue::as_bytes);
    asked.is_some_and(|asked| given.is_some_and(|given| given.eq_ignore_ascii_case(asked)))
}

fn request(upstream: &Upstream, outgoing: Outgoing<'_>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = Uri::from(outgoing.target.clone());
    *request.headers_mut() = outgoing.headers.clone();
    request.headers_mut().insert(HOST, upstream.host().clone());
    if let Some(via) = upstream.via() {
        request.headers_mut().append(VIA, via.clone());
    }
    if let Some(rank) = outgoing.rank {
        request.headers_mut().insert(X_DATA_PARALLEL_RANK, rank.into());
    }
    request
}
