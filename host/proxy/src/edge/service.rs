//! Request dispatch at the edge: validation of heads, choice between inference and control endpoints, and CORS headers
//! of responses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use bytes::Bytes;
use http::header::UPGRADE;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use inference_api::{Endpoint, EndpointWork};
use tower::ServiceExt;

use super::head;
use super::respond::{Respond, Terms};
use crate::base::reply::{self, Refusal};
use crate::edge::connections::{self, AddressLimit, ConnectionSlot, Forwarded, Sender};
use crate::edge::{control_routes, tokenize_route};
use crate::limits::memory::Memory;
use crate::observe::access::{AccessHandle, AccessStart};
use crate::observe::edge_metrics::EdgeMetrics;
use crate::proxy::Proxy;
use crate::request::body_reader;
use crate::request::cut::unless_cut;
use crate::request::handle;
use crate::request::place::ClientHeaders;
use crate::request::realtime::{self, OpenedTunnel, TunnelSlot};
use crate::request::response_body::Body;
use crate::request::responses::{self, ResponseCall};

/// Request handler of a connection.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) proxy: Arc<Proxy>,
    pub(super) cold: Router,
}

impl Respond for Service {
    type Body = Body;

    fn terms(&self) -> Terms {
        let snapshot = self.proxy.snapshots.load();
        Terms {
            limits: snapshot.edge.limits,
            http2: snapshot.edge.listeners.http2,
            tls: snapshot.edge.listeners.clients.clone(),
            patience: snapshot.limits.idle_timeout,
        }
    }

    fn metrics(&self) -> &EdgeMetrics {
        &self.proxy.metrics.edge
    }

    fn sender(
        &self,
        request: &mut Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> Result<(Option<IpAddr>, Option<Forwarded>), Refusal> {
        let edge = self.proxy.snapshots.edge();
        let sender = connections::sender(&edge.fronts, slot.peer(), request.headers_mut());
        let Sender::Behind(client) = sender else {
            return Ok((sender.address(), None));
        };
        let forwarded = slot.forwarded(client, AddressLimit::of_client(&edge));
        if forwarded.is_none() && !connections::is_always_answered(request.uri().path()) {
            return Err(Refusal::AddressFull);
        }
        Ok((sender.address(), forwarded))
    }

    async fn respond(
        &self,
        mut request: Request<Incoming>,
        from: Option<IpAddr>,
        opened: &OpenedTunnel,
    ) -> Response<Body> {
        // The upgrade resolves only if the response switches protocols.
        let client = hyper::upgrade::on(&mut request);
        let mut response = self.answer(request, from).await;
        if let Some(worker) = response.extensions_mut().remove::<TunnelSlot>() {
            opened.fill(&worker, client, self.proxy.metrics.tunnels.clone());
        }
        response
    }

    fn refuse(&self, request: &Request<Incoming>, refusal: &Refusal) -> Response<Body> {
        let mut response = self.refuse_unread(request, refusal);
        if let Some(cors) = &self.proxy.snapshots.edge().cors {
            cors.mark(cors.allowed(request.headers()), response.headers_mut());
        }
        response
    }
}

impl Service {
    async fn answer(&self, request: Request<Incoming>, from: Option<IpAddr>) -> Response<Body> {
        let (passes, cors) = {
            let edge = self.proxy.snapshots.edge();
            let passes = head::check(&request, &edge.limits, Some(&edge.via));
            let passes = passes.and_then(|()| check_memory(&request, &edge.memory));
            (passes, edge.cors.clone())
        };
        if let Err(refusal) = passes {
            self.proxy.metrics.edge.refused(&refusal);
            let response = self.refuse(&request, &refusal);
            if let Refusal::MemoryFull = refusal {
                let (head, body) = request.into_parts();
                Box::pin(body_reader::drain_body(&head.headers, body)).await;
            }
            return response;
        }
        let Some(cors) = cors else {
            return self.dispatch(request, from).await;
        };
        if let Some(answer) = cors.preflight::<_, Bytes>(&request) {
            return answer.map(Body::from);
        }
        let origin = cors.allowed(request.headers());
        let mut response = self.dispatch(request, from).await;
        cors.mark(origin, response.headers_mut());
        response
    }

    async fn dispatch(&self, mut request: Request<Incoming>, from: Option<IpAddr>) -> Response<Body> {
        head::trim_slash(request.uri_mut());
        let path = request.uri().path();
        match Endpoint::of_path(path) {
            Some(endpoint) if request.method() == endpoint.method() => match endpoint.spec().upgrades {
                true => self.open(endpoint, request, from).await,
                false => self.serve(endpoint, request, from).await,
            },
            None if self.forwards(path) => self.serve(Endpoint::Forwarded, request, from).await,
            Some(endpoint) => {
                let refusal = control_routes::wrong_method(path, endpoint.method());
                self.refuse_unread(&request, &refusal)
            }
            None => {
                if let Some(call) = ResponseCall::of_path(path) {
                    return self.of_response(call.allow, request).await;
                }
                self.of_page(request).await
            }
        }
    }

    /// Returns `true` if the configuration forwards the path to workers.
    fn forwards(&self, path: &str) -> bool {
        self.proxy.snapshots.edge().forwards(path)
    }

    /// Answers a request for a page of the router's own.
    async fn of_page(&self, request: Request<Incoming>) -> Response<Body> {
        let page = self.cold.clone().oneshot(control_routes::request(request));
        let mut page = Box::pin(async {
            let Ok(response) = page.await;
            Ok(response.map(Body::Cold))
        });
        let answered = unless_cut(&self.proxy.readiness, page.as_mut()).await;
        answered.unwrap_or_else(|refusal| reply::refuse(&refusal).map(Body::from))
    }

    /// Answers a request for a stored response of a worker.
    async fn of_response(&self, allow: &'static str, request: Request<Incoming>) -> Response<Body> {
        if !allow
            .split(", ")
            .any(|method| method == request.method().as_str())
        {
            let refusal = control_routes::wrong_method(request.uri().path(), allow);
            return self.refuse_unread(&request, &refusal);
        }
        self.proxy.metrics.edge.came_for(responses::CLASS);
        Box::pin(responses::answer(&self.proxy, request)).await
    }

    /// Answers a request to a WebSocket endpoint. If its worker switches protocols, the tunnel is in the response's
    /// extensions.
    async fn open(
        &self,
        endpoint: Endpoint,
        request: Request<Incoming>,
        from: Option<IpAddr>,
    ) -> Response<Body> {
        if let Err(refusal) = realtime::check(endpoint, &request) {
            let class = endpoint.spec().class;
            self.proxy.metrics.dispatch.unrouted(class, &refusal);
            return self.refuse_unread(&request, &refusal);
        }
        self.serve(endpoint, request, from).await
    }

    /// Answers a request to an endpoint of the table according to its kind of work.
    async fn serve(
        &self,
        endpoint: Endpoint,
        request: Request<Incoming>,
        from: Option<IpAddr>,
    ) -> Response<Body> {
        let spec = endpoint.spec();
        self.proxy.metrics.edge.came_for(spec.class);
        match spec.work {
            EndpointWork::Model => handle::infer(&self.proxy, endpoint, request, from).await,
            EndpointWork::Tokenizer => {
                let answer = Box::pin(tokenize_route::tokenize(
                    &self.proxy,
                    endpoint,
                    control_routes::request(request),
                ));
                answer.await.map(Body::Cold)
            }
        }
    }

    /// Answers a request that is refused before it is read. Its access line and its answer have the same id.
    fn refuse_unread(&self, request: &Request<Incoming>, refusal: &Refusal) -> Response<Body> {
        let shape = reply::shape_of(request.uri().path());
        let client = ClientHeaders::of_unknown(&self.proxy, shape, request.headers());
        self.log_refused(request, client.id(), refusal);
        let mut response = client.refuse(refusal).map(Body::from);
        client.set(response.headers_mut());
        response
    }

    /// Writes the access line of a request to an endpoint that is refused before it is read.
    fn log_refused(&self, request: &Request<Incoming>, id: &HeaderValue, refusal: &Refusal) {
        let is_model = |endpoint: &Endpoint| matches!(endpoint.spec().work, EndpointWork::Model);
        let Some(endpoint) = Endpoint::of_path(request.uri().path()).filter(is_model) else {
            return;
        };
        let snapshot = self.proxy.snapshots.load();
        let access = AccessHandle::begin(&snapshot.settings.record, || AccessStart {
            // Requests that have no number fail, and have a line whatever the sample.
            seq: 0,
            id: Some(id),
            client: None,
            method: request.method(),
            path: endpoint.path(),
            trace: None,
            arrived: Instant::now(),
            generation: snapshot.generation.0,
        });
        access.refused(refusal);
    }
}

/// While memory is short, refuses requests that have a body or open a WebSocket. Probes and requests without a body,
/// such as preflights, are answered.
fn check_memory<B: HttpBody>(request: &Request<B>, memory: &Memory) -> Result<(), Refusal> {
    if !memory.refuses() || connections::is_always_answered(request.uri().path()) {
        return Ok(());
    }
    // Bodies of GET and HEAD do not count: clients hardly ever send one.
    let has_body =
        !request.body().is_end_stream() && !matches!(*request.method(), Method::GET | Method::HEAD);
    if has_body || request.headers().contains_key(UPGRADE) {
        return Err(Refusal::MemoryFull);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[test]
    fn while_memory_is_short_requests_with_a_body_and_websockets_are_refused() {
        let memory = Memory::at(90);
        let head = |method: &str, path: &str| Request::builder().method(method).uri(path);
        let check = |method, path, has_body: bool, passes: bool| {
            let body = Full::<Bytes>::from(if has_body { "{}" } else { "" });
            let passed = check_memory(&head(method, path).body(body).unwrap(), &memory);
            assert_eq!(passed.is_ok(), passes, "{method} {path} {has_body}");
        };
        for (method, path) in [
            ("GET", "/v1/models"),
            ("HEAD", "/version"),
            ("OPTIONS", "/v1/chat/completions"),
            ("POST", "/ping"),
            ("DELETE", "/v1/responses/resp_1"),
        ] {
            check(method, path, false, true);
        }
        check("HEAD", "/health", false, true);
        check("POST", "/readyz", true, true);
        check("GET", "/v1/models", true, true);
        check("POST", "/v1/chat/completions", true, false);
        check("DELETE", "/v1/responses/resp_1", true, false);
        let upgrade = head("GET", "/v1/realtime").header(UPGRADE, "websocket");
        let upgrade = upgrade.body(Full::<Bytes>::default()).unwrap();
        assert!(check_memory(&upgrade, &memory).is_err());
        assert!(check_memory(&upgrade, &Memory::default()).is_ok());
    }
}
