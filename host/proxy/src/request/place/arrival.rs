//! Arrival of a request at a front end: its number, its id, and its client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Response};
use inference_api::{Endpoint, ErrorShape};

use crate::base::headers::{REQUEST_ID, X_REQUEST_ID};
use crate::base::in_place;
use crate::base::reply::{self, Refusal};
use crate::dispatch::request_head::RequestHead;
use crate::limits::clients::{Principal, RateLimitGuard};
use crate::observe::access::{AccessHandle, AccessStart};
use crate::observe::spans::{SpanHandle, SpanStart};
use crate::observe::watch::RequestWatch;
use crate::proxy::Proxy;
use crate::request::snapshot::Snapshot;
use crate::request::trace::requests_explanation;

/// Headers of every response to one client: its request id, and its rate limits.
#[derive(Debug, Clone)]
pub(crate) struct ClientHeaders {
    id: HeaderValue,
    shape: ErrorShape,
    /// Client whose key the request has. `None` where clients need no key.
    principal: Option<Arc<Principal>>,
}

impl ClientHeaders {
    /// Identifies the client of a request by its headers, and takes its key from them. Requests without an id get one.
    pub(crate) fn enter(
        proxy: &Proxy,
        snapshot: &Snapshot,
        seq: u64,
        shape: ErrorShape,
        headers: &mut HeaderMap,
    ) -> (Self, Result<Option<RateLimitGuard>, Refusal>) {
        let id = headers.entry(X_REQUEST_ID);
        let id = id.or_insert_with(|| proxy.request_id(seq)).clone();
        let entry = snapshot.clients.enter(headers);
        let headers = Self {
            id,
            shape,
            principal: entry.client,
        };
        (headers, entry.reservation)
    }

    /// Identifies a request whose client is not examined. A request without an id gets one.
    pub(crate) fn of_unknown(proxy: &Proxy, shape: ErrorShape, headers: &HeaderMap) -> Self {
        let id = headers.get(X_REQUEST_ID).cloned();
        Self {
            id: id.unwrap_or_else(|| proxy.request_id(proxy.next_seq())),
            shape,
            principal: None,
        }
    }

    /// Returns the request id.
    pub(crate) fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Returns the name of the client whose key the request has.
    pub(crate) fn name(&self) -> Option<&str> {
        self.principal.as_ref().map(|client| &*client.name)
    }

    /// Sets the headers. The client gets its own request id, whatever the worker's is.
    pub(crate) fn set(&self, headers: &mut HeaderMap) {
        if let Some(client) = &self.principal {
            client.set_ratelimit_headers(headers);
        }
        if self.shape == ErrorShape::Anthropic {
            headers.insert(REQUEST_ID, self.id.clone());
        }
        headers.insert(X_REQUEST_ID, self.id.clone());
    }

    /// Returns the response of a refusal, without the headers.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Response<Bytes> {
        reply::refuse_in(self.shape, Some(&self.id), refusal)
    }
}

/// Request that has just arrived, without its body.
#[derive(Debug)]
pub(crate) struct ClientArrival {
    pub(crate) head: Box<RequestHead>,
    pub(crate) client: ClientHeaders,
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
        let shape = endpoint.spec().errors;
        let (client, reservation) = ClientHeaders::enter(proxy, snapshot, seq, shape, &mut headers);
        let target = head.uri.into_parts().path_and_query;
        let target = target.unwrap_or(PathAndQuery::from_static(endpoint.path()));
        let arrived = Instant::now();
        let path = logged_path(endpoint, &target);
        let is_forced = snapshot.settings.traces.is_some() && requests_explanation(&headers);
        let start = SpanStart {
            seq,
            id: client.id(),
            client: client.principal.as_ref().map(|client| &client.name),
            endpoint,
            method: &head.method,
            path,
            arrived,
            generation: snapshot.generation.0,
            is_forced,
        };
        let spans = SpanHandle::begin(snapshot.settings.traces.as_ref(), &mut headers, start);
        let access = AccessHandle::begin(&snapshot.settings.record, || AccessStart {
            seq,
            id: Some(client.id()),
            client: client.name(),
            method: &head.method,
            path,
            trace: spans.identity(),
            arrived,
            generation: snapshot.generation.0,
        });
        // On the heap: it is moved through all steps of the request.
        let method = head.method;
        let head = in_place::boxed(|| RequestHead {
            endpoint,
            seq,
            run: proxy.run,
            id: client.id().clone(),
            from,
            arrived,
            method,
            target,
            headers,
            watch: RequestWatch::start(arrived, access, spans),
        });
        Self {
            head,
            client,
            reservation,
        }
    }
}

/// Returns the path of an endpoint for the access log. Forwarded paths are those of the configuration.
fn logged_path(endpoint: Endpoint, target: &PathAndQuery) -> &str {
    match endpoint {
        Endpoint::Forwarded => target.path(),
        endpoint => endpoint.path(),
    }
}
