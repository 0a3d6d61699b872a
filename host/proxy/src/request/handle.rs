//! Handling of one inference request over HTTP: read, open, dispatch and relay.
//!
//! Failover ends when the client receives the first byte.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use inference_api::Endpoint;
use tracing::{Instrument, debug_span};

use crate::base::deadline::{ResponseDeadline, within};
use crate::base::reply::Refusal;
use crate::base::request_id::RequestId;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::request_head::RequestHead;
use crate::dispatch::session::{PlacedAnswer, PlacementSession};
use crate::limits::admission::Permit;
use crate::limits::clients::RateLimitGuard;
use crate::observe::stages::RequestStage;
use crate::proxy::Proxy;
use crate::request::body_reader;
use crate::request::cut::unless_cut;
use crate::request::keep_alive;
use crate::request::place::{ArrivedRequest, ClientArrival, OpenRequest, open};
use crate::request::realtime;
use crate::request::response_body::Body;
use crate::request::responses;
use crate::request::snapshot::Snapshot;
use crate::request::stream::{self, RelayParts};

/// Answers a request to an inference endpoint.
pub(crate) async fn infer(
    proxy: &Arc<Proxy>,
    endpoint: Endpoint,
    request: Request<Incoming>,
    from: Option<IpAddr>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let snapshot = proxy.snapshots.load();
    let ClientArrival {
        head,
        client,
        reservation,
    } = ClientArrival::new(proxy, &snapshot, endpoint, head, from);
    let (access, spans) = (head.watch.access.clone(), head.watch.spans.clone());
    // Costs nothing unless debug logs are on. Warnings name the request themselves.
    let span = debug_span!("request", id = %RequestId(&head.id), path = head.path());
    // A request that is cut is dropped at the end of this block: that settles its client's usage before the headers of
    // its limits are set.
    let answered = {
        // Pinned here, like the futures below: a future that is moved takes its size twice.
        let answering = pin!(async {
            match reservation {
                Ok(reservation) => answer(proxy, snapshot, reservation, head, body).await,
                Err(refusal) => Err(refuse_client(proxy, refusal, &head, body).await),
            }
        });
        unless_cut(&proxy.readiness, pin!(answering.instrument(span.clone()))).await
    };
    let mut response = answered.unwrap_or_else(|refusal| {
        access.refused(&refusal);
        spans.refused(&refusal);
        span.in_scope(|| client.refuse(&refusal)).map(Body::from)
    });
    // A stream may begin with comments, before a worker answers.
    access.status(response.status());
    spans.status(response.status());
    client.set(response.headers_mut());
    response
}

/// Refuses a client that may not come in. Its body is discarded for a limited time, so that the client gets to read the
/// refusal.
async fn refuse_client(proxy: &Proxy, refusal: Refusal, head: &RequestHead, body: Incoming) -> Refusal {
    let refusal = proxy.unrouted(head.endpoint.spec().class, refusal);
    head.watch.access.refused(&refusal);
    head.watch.spans.refused(&refusal);
    body_reader::drain_body(&head.headers, body).await;
    refusal
}

/// Refuses a body. A short rest of it is discarded first: otherwise a client that is still sending may not get to
/// read the answer.
async fn refuse_body(proxy: &Proxy, refusal: Refusal, head: &RequestHead, body: Incoming) -> Refusal {
    let refusal = proxy.unrouted(head.endpoint.spec().class, refusal);
    let log = || {
        head.watch.access.refused(&refusal);
        head.watch.spans.refused(&refusal);
    };
    body_reader::drain_refused(&refusal, &head.headers, body, log).await;
    refusal
}

async fn answer(
    proxy: &Arc<Proxy>,
    snapshot: Arc<Snapshot>,
    reservation: Option<RateLimitGuard>,
    head: Box<RequestHead>,
    mut body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let limits = &snapshot.limits;
    let pace = snapshot.edge.limits.pace(limits.idle_timeout);
    // A request that is cut here has no lifecycle yet, which would count it.
    let read = {
        let reading = pin!(async {
            proxy.starts.start().await;
            let slot = snapshot.edge.slot();
            let read = body_reader::collect_client(&mut body, limits.body_bytes, pace, slot).await;
            read.map_err(Refusal::from)
        });
        unless_cut(&proxy.readiness, reading).await
    };
    let body = match read {
        Ok(read) => read,
        Err(refusal) => {
            // The request is over for its client's limits before the rest of the body is read.
            drop(reservation);
            return Err(Box::pin(refuse_body(proxy, refusal, &head, body)).await);
        }
    };
    head.watch.took(RequestStage::Read, head.arrived);
    head.watch.spans.note(|trace| {
        if let Some(read) = &mut trace.read {
            read.bytes = body.len() as u64;
        }
    });
    let arrived = ArrivedRequest {
        head,
        body,
        reservation,
        may_split: true,
    };
    let opened = open(proxy, &snapshot, arrived).await?;
    // The answer may go on long after a reload: from here on, the request has its pool and its policies.
    drop(snapshot);
    let request = &opened.request;
    let (endpoint, deadline) = (request.head.endpoint, request.deadline());
    let keep_alive = request.pool().keep_alive.clone();
    let answer = match keep_alive.filter(|_| request.params.stream) {
        None => serve(proxy, opened).await,
        Some(keep_alive) => {
            let (readiness, proxy) = (proxy.readiness.clone(), Arc::clone(proxy));
            let serving = async move { serve(&proxy, opened).await };
            // On the heap: every request would carry its room.
            Box::pin(keep_alive::answer(keep_alive, endpoint, readiness, serving)).await
        }
    };
    let mut answer = answer?;
    if let Some(deadline) = deadline {
        answer.extensions_mut().insert(ResponseDeadline(deadline));
    }
    Ok(answer)
}

/// Serves a request. Returns a worker's answer, or the refusal.
async fn serve(proxy: &Proxy, opened: OpenRequest) -> Result<Response<Body>, Refusal> {
    let OpenRequest {
        request,
        mut lifecycle,
        response_limits,
    } = opened;
    lifecycle.placing(&request);
    let endpoint = request.head.endpoint;
    match dispatch(proxy, &request).await {
        Ok((placed, permit)) => {
            lifecycle.admit(permit, request.pool());
            if placed.answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return realtime::response(placed, lifecycle);
            }
            let member = placed.answer.attempt.member;
            let parts = RelayParts {
                lifecycle,
                endpoint,
                learner: responses::learner(proxy, &request, response_limits, member),
            };
            Ok(stream::response(placed, parts))
        }
        Err(refusal) => {
            lifecycle.was_sent(&request.progress);
            Err(lifecycle.refused(refusal))
        }
    }
}

/// Places and sends the request, within its time limits: for the whole of it, and for the beginning of an answer.
async fn dispatch(
    proxy: &Proxy,
    request: &Arc<InferenceRequest>,
) -> Result<(PlacedAnswer, Option<Permit>), Refusal> {
    let mut session = PlacementSession::new(Arc::clone(request));
    let deadline = session.deadline();
    let placed = {
        let dispatching = pin!(session.dispatch(&proxy.dispatcher));
        within(deadline, dispatching).await
    };
    let permit = session.end(placed.is_ok());
    Ok((placed?, permit))
}
