//! What listeners differ in: how they answer a request, and what their connections go by. All else is the same code for clients,
//! operators and callers of the index.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;

use super::http2::Http2Limits;
use super::metrics::EdgeMetrics;
use super::service::{Deadline, Held};
use super::spec::EdgeLimits;
use crate::base::reply::Refusal;
use crate::edge::connections::{ConnectionSlot, Forwarded};
use crate::edge::tls::ServerTls;
use crate::request::realtime::OpenedTunnel;

/// What a connection goes by, as it is configured when the connection begins.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) limits: EdgeLimits,
    pub(super) http2: Http2Limits,
    /// What it begins with; none: it is plain.
    pub(super) tls: Option<Arc<ServerTls>>,
    /// How long its peer may take nothing of what is sent.
    pub(super) patience: Duration,
}

/// The requests of one listener.
pub(super) trait Respond: Clone + Send + Sync + 'static {
    /// What answers consist of.
    type Body: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static;

    /// The terms of a connection that begins now.
    fn terms(&self) -> Terms;

    /// Where connections that end early are counted.
    fn metrics(&self) -> &EdgeMetrics;

    /// Whom a request is from, and what counts it until its turn is over.
    fn sender(
        &self,
        _request: &mut Request<Incoming>,
        seat: &ConnectionSlot,
    ) -> Result<(Option<IpAddr>, Option<Forwarded>), Refusal> {
        Ok((seat.peer(), None))
    }

    /// Answers a request that has its place and is `from` somewhere. A tunnel is left in `opened` where the answer switches protocols.
    fn respond(
        &self,
        request: Request<Incoming>,
        from: Option<IpAddr>,
        opened: &OpenedTunnel,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers a request to `path` that has no place.
    fn refuse(&self, path: &str, refusal: &Refusal) -> Response<Self::Body>;
}

/// Answers a request of an HTTP/1.1 connection, once that has a seat.
pub(super) async fn call<R: Respond>(
    listener: &R,
    mut request: Request<Incoming>,
    seat: &ConnectionSlot,
    opened: &OpenedTunnel,
) -> Result<Response<Held<R::Body>>, Infallible> {
    let mut turn = seat.turn();
    let refused = |path: &str, refusal: &Refusal| {
        listener.metrics().refused(refusal);
        listener.refuse(path, refusal)
    };
    if !seat.is_seated()
        && let Err(none) = Box::pin(seat.sit(request.uri().path())).await
    {
        let response = refused(request.uri().path(), &none.into());
        return Ok(response.map(|body| Held::new(body, turn)));
    }
    let from = match listener.sender(&mut request, seat) {
        Ok((from, forwarded)) => {
            turn.is_of(forwarded);
            from
        }
        Err(refusal) => {
            let response = refused(request.uri().path(), &refusal);
            return Ok(response.map(|body| Held::new(body, turn)));
        }
    };
    let mut response = listener.respond(request, from, opened).await;
    if let Some(Deadline(deadline)) = response.extensions_mut().remove() {
        turn.must_end(deadline);
    }
    Ok(response.map(|body| Held::new(body, turn)))
}
