//! ClientArrival of a request at a front end: its number, its id, and its client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::uri::PathAndQuery;
use inference_api::Endpoint;

use crate::base::headers::X_REQUEST_ID;
use crate::base::reply::Refusal;
use crate::dispatch::request_head::RequestHead;
use crate::limits::clients::{Entry, Principal, RateLimitGuard};
use crate::proxy::Proxy;
use crate::request::snapshot::Snapshot;

/// Request that has just arrived, without its body.
#[derive(Debug)]
pub(crate) struct ClientArrival {
    pub(crate) head: RequestHead,
    /// Client whose key the request has. `None` where clients need no key.
    pub(crate) caller: Option<Arc<Principal>>,
    /// Rate-limit reservation of a known client, or the refusal of one that may not come in.
    pub(crate) reservation: Result<Option<RateLimitGuard>, Refusal>,
}

impl ClientArrival {
    /// Numbers a request to an endpoint, and identifies its client.
    pub(crate) fn new(
        proxy: &Proxy,
        snapshot: &Snapshot,
        endpoint: Endpoint,
        head: Parts,
        from: Option<IpAddr>,
    ) -> Self {
        let (seq, mut headers) = (proxy.next_seq(), head.headers);
        let id = headers.entry(X_REQUEST_ID);
        let id = id.or_insert_with(|| proxy.request_id(seq)).clone();
        let Entry { caller, reservation } = snapshot.clients.enter(&mut headers);
        let target = head.uri.into_parts().path_and_query;
        let head = RequestHead {
            endpoint,
            seq,
            run: proxy.run,
            id,
            from,
            arrived: Instant::now(),
            method: head.method,
            target: target.unwrap_or(PathAndQuery::from_static(endpoint.path())),
            headers,
        };
        Self {
            head,
            caller,
            reservation,
        }
    }
}
