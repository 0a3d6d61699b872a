//! Opening of a request: from its head and body to a request that can be placed.

use std::sync::Arc;

use bytes::Bytes;
use inference_api::{Endpoint, Peek};

use crate::base::reply::Refusal;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::model_metrics::OTHER_MODEL;
use crate::dispatch::request_head::RequestHead;
use crate::limits::clients::RateLimitGuard;
use crate::limits::edge_settings::ResponseLimits;
use crate::proxy::Proxy;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::meter::MeterStart;
use crate::request::prepare::{RoutedRequest, claim, prepare};
use crate::request::responses::{self, ResponseKey};
use crate::request::snapshot::Snapshot;
use crate::request::trace::begin_trace;

/// Request of a client that was let in.
pub(crate) struct ArrivedRequest {
    pub(crate) head: Box<RequestHead>,
    /// The whole body.
    pub(crate) body: Bytes,
    /// Rate-limit reservation of a known client.
    pub(crate) reservation: Option<RateLimitGuard>,
    /// Set if the front end can send the request to two workers.
    pub(crate) may_split: bool,
}

/// Request that can be placed.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub(crate) request: Arc<InferenceRequest>,
    pub(crate) lifecycle: Box<RequestLifecycle>,
    /// Limits of the table of response ids.
    pub(crate) response_limits: ResponseLimits,
}

/// Facts of a request's body, and its route.
struct MatchedRequest<'a> {
    peek: Peek<'a>,
    /// Index of the route.
    route: usize,
}

/// Matches the route, charges the client, tokenizes, and begins the record of a request.
///
/// # Errors
/// The refusal of a request that is not placed. It has been counted.
pub(crate) async fn open(
    proxy: &Proxy,
    snapshot: &Snapshot,
    arrived: ArrivedRequest,
) -> Result<OpenRequest, Refusal> {
    let ArrivedRequest {
        head,
        body,
        reservation,
        may_split,
    } = arrived;
    let body = head.trimmed(body);
    let matched = match_route(snapshot, &head, &body, reservation.as_ref())
        .map_err(|refusal| proxy.unrouted(head.endpoint.spec().class, refusal))?;
    let mut lifecycle = begin(proxy, snapshot, &head, &matched, reservation);
    let MatchedRequest { peek, route } = matched;
    let routed = RoutedRequest {
        snapshot,
        route,
        peek: &peek,
        may_split,
    };
    let prepared = match claim(&mut lifecycle, &peek, &body) {
        Ok(claim) => prepare(routed, head, claim, body.clone()).await,
        Err(limited) => Err(Refusal::Limited(limited)),
    };
    let mut request = match prepared {
        Ok(request) => request,
        Err(refusal) => return Err(lifecycle.refused(refusal)),
    };
    if let Err(refusal) = pin(proxy, snapshot, &mut request, &peek) {
        return Err(lifecycle.refused(refusal));
    }
    record_prepared(&mut lifecycle, &mut request);
    Ok(OpenRequest {
        request: Arc::new(request),
        lifecycle,
        response_limits: snapshot.edge.limits.responses(),
    })
}

/// Reads the body and matches the route.
fn match_route<'a>(
    snapshot: &Snapshot,
    head: &RequestHead,
    body: &'a Bytes,
    reservation: Option<&RateLimitGuard>,
) -> Result<MatchedRequest<'a>, Refusal> {
    let access = &head.watch.access;
    access.update(|line| line.size.bytes_in = Some(body.len() as u64));
    let mut peek = head.read(body)?;
    snapshot.edge.limits.check_depth(&peek)?;
    snapshot.name_model(&mut peek, Some(head.path()), &head.headers);
    access.update(|line| {
        line.request.model = (!peek.model.is_empty()).then(|| OTHER_MODEL.into());
        line.request.stream = Some(peek.stream);
    });
    if let Some(reservation) = reservation {
        reservation.check_model(&peek.model)?;
    }
    let route = snapshot.route(&peek.model, Some(head.path()), &head.headers);
    match route {
        Some(route) => Ok(MatchedRequest { peek, route }),
        None => Err(Refusal::not_served(&peek.model)),
    }
}

/// Begins the lifecycle of a request whose route is known.
fn begin(
    proxy: &Proxy,
    snapshot: &Snapshot,
    head: &RequestHead,
    matched: &MatchedRequest<'_>,
    reservation: Option<RateLimitGuard>,
) -> Box<RequestLifecycle> {
    let (peek, route) = (&matched.peek, matched.route);
    let pool = Arc::clone(snapshot.pool_of(route));
    let is_known = || snapshot.has_model_name(route, &peek.model);
    let start = MeterStart {
        arrived: head.arrived,
        class: head.endpoint.spec().class,
        model: pool.metrics.models.find(&peek.model, is_known),
        stages: head.watch.stages.times(),
    };
    let mut lifecycle = RequestLifecycle::begin(pool, head.id.clone(), proxy.readiness.clone(), start);
    lifecycle.of_client(reservation);
    let (access, spans) = (&head.watch.access, &head.watch.spans);
    access.update(|line| {
        if is_known() {
            line.request.model = Some((&*peek.model).into());
        }
        line.placement.pool = Some(lifecycle.pool().workers.name.clone());
        line.placement.route = Some(route + 1);
    });
    lifecycle.log_access(access.clone());
    spans.routed(route + 1);
    spans.note(|trace| {
        let facts = &mut trace.facts;
        let name = if is_known() { &*peek.model } else { OTHER_MODEL };
        facts.model = (!peek.model.is_empty()).then(|| name.into());
        facts.params.stream = Some(peek.stream);
        facts.params.max_tokens = peek.max_tokens;
    });
    lifecycle.trace_spans(spans.clone());
    lifecycle
}

/// Pins the request to the worker of the response that it continues.
fn pin(
    proxy: &Proxy,
    snapshot: &Snapshot,
    request: &mut InferenceRequest,
    peek: &Peek<'_>,
) -> Result<(), Refusal> {
    if request.head.endpoint == Endpoint::Responses
        && let Some(id) = peek.previous_response_id()
    {
        let client = request.sender.client.as_ref();
        let key = ResponseKey {
            client: client.map(|client| &*client.name),
            id: &id,
        };
        request.progress.pinned = responses::pinned(proxy, snapshot, request.pool(), key)?;
    }
    Ok(())
}

/// Records the prepared request: access line, spans, reservation and decision log.
fn record_prepared(lifecycle: &mut RequestLifecycle, request: &mut InferenceRequest) {
    let watch = &request.head.watch;
    watch.access.update(|line| {
        line.placement.arm = request.assignment.map(|assignment| assignment.arm);
        let prompt = request.params.prompt.as_ref();
        line.size.prompt_tokens = prompt.map(|prompt| prompt.tokens() as u64);
    });
    watch.spans.note(|trace| {
        trace.facts.params.session = request.params.session;
        if let (Some(note), Some(prompt)) = (&mut trace.tokens, &request.params.prompt) {
            note.tokens = Some(prompt.tokens() as u64);
        }
    });
    lifecycle.join(request.enrollment());
    if let (Some(reservation), Some(prompt)) = (lifecycle.reservation(), &request.params.prompt) {
        reservation.reconcile(prompt.tokens() as u64);
    }
    request.progress.trace = begin_trace(request);
    lifecycle.record(request.progress.trace.clone());
    lifecycle.must_end(request.deadline());
}
