//! Interface between connections and a listener's handlers: the settings of its connections, and its responses. All
//! other code is shared by the listeners for clients, operators and callers of the index.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;

use super::connection_body::ConnectionBody;
use crate::base::deadline::ResponseDeadline;
use crate::base::reply::Refusal;
use crate::base::tls::ServerTls;
use crate::edge::connections::{ConnectionSlot, Forwarded};
use crate::limits::edge_settings::{EdgeLimits, Http2Limits};
use crate::observe::edge_metrics::EdgeMetrics;
use crate::request::realtime::OpenedTunnel;

/// Settings of a connection, as configured when it begins.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) limits: EdgeLimits,
    pub(super) http2: Http2Limits,
    /// TLS settings; `None` for plain connections.
    pub(super) tls: Option<Arc<ServerTls>>,
    /// Write timeout: time in which the peer must take some of the data sent.
    pub(super) patience: Duration,
}

/// Request handler of one listener.
pub(super) trait Respond: Clone + Send + Sync + 'static {
    /// Type of response bodies.
    type Body: HttpBody<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static;

    /// Returns the settings of a new connection.
    fn terms(&self) -> Terms;

    /// Returns the counters of connections that end early.
    fn metrics(&self) -> &EdgeMetrics;

    /// Determines the sender of a request, and counts it until it ends.
    fn sender(
        &self,
        _request: &mut Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> Result<(Option<IpAddr>, Option<Forwarded>), Refusal> {
        Ok((slot.peer(), None))
    }

    /// Answers an admitted request of the sender `from`. If the response switches protocols, a tunnel is left in
    /// `opened`.
    fn respond(
        &self,
        request: Request<Incoming>,
        from: Option<IpAddr>,
        opened: &OpenedTunnel,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers a request that got no slot.
    fn refuse(&self, request: &Request<Incoming>, refusal: &Refusal) -> Response<Self::Body>;
}

/// Answers a request of an HTTP/1.1 connection once the connection has a slot.
pub(super) async fn call<R: Respond>(
    listener: &R,
    mut request: Request<Incoming>,
    slot: &ConnectionSlot,
    opened: &OpenedTunnel,
) -> Result<Response<ConnectionBody<R::Body>>, Infallible> {
    let mut active = slot.begin_request();
    let refused = |request: &Request<Incoming>, refusal: &Refusal| {
        listener.metrics().refused(refusal);
        listener.refuse(request, refusal)
    };
    if !slot.is_acquired()
        && let Err(none) = Box::pin(slot.acquire(request.uri().path())).await
    {
        let response = refused(&request, &none.into());
        return Ok(response.map(|body| ConnectionBody::new(body, active)));
    }
    let from = match listener.sender(&mut request, slot) {
        Ok((from, forwarded)) => {
            active.is_of(forwarded);
            from
        }
        Err(refusal) => {
            let response = refused(&request, &refusal);
            return Ok(response.map(|body| ConnectionBody::new(body, active)));
        }
    };
    let mut response = listener.respond(request, from, opened).await;
    if let Some(ResponseDeadline(deadline)) = response.extensions_mut().remove() {
        active.must_end(deadline);
    }
    Ok(response.map(|body| ConnectionBody::new(body, active)))
}
