//! `/v1/responses/{id}` and its cancellation: sent only to the worker that made the response.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use inference_api::{Endpoint, EndpointClass, ErrorShape, is_response_id};
use worker_client::{ConnectionReuse, OutgoingRequest, SendTimeouts};

use super::{ResponseKey, ResponseLearner, ResponseOrigin, check_in_service, member_of};
use crate::base::deadline::{ResponseDeadline, within};
use crate::base::headers;
use crate::base::idle_timeout::IdleTimeoutLimits;
use crate::base::label::FailureKind;
use crate::base::reply::{self, Refusal};
use crate::dispatch::attempt::{self, BegunAnswer, BegunAttempt, DecisionReport};
use crate::dispatch::load_guard::LoadGuard;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::session::PlacedAnswer;
use crate::fleet::health::AttemptToken;
use crate::fleet::pool::Member;
use crate::limits::clients::RateLimitGuard;
use crate::observe::access::{AccessHandle, AccessStart};
use crate::observe::spans::AttemptSpan;
use crate::observe::stages::StageClock;
use crate::proxy::Proxy;
use crate::request::body_reader;
use crate::request::cut::unless_cut;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::meter::MeterStart;
use crate::request::place::ClientHeaders;
use crate::request::response_body::Body;
use crate::request::snapshot::Snapshot;
use crate::request::stream::{self, RelayParts};

const PREFIX: &str = "/v1/responses/";
/// Endpoint class of these requests in the metrics.
pub(crate) const CLASS: EndpointClass = EndpointClass::Response;
/// Longest body of a request that needs none.
const LONGEST_BODY: usize = 64 << 10;

/// Path below a response's id.
pub(crate) struct ResponsePage {
    /// Path as OpenAPI writes it.
    pub(crate) path: &'static str,
    /// Methods of the path, as `Allow` names them.
    pub(crate) allow: &'static str,
    /// Summary of one line, for people.
    pub(crate) summary: &'static str,
    /// Path after the id.
    suffix: &'static str,
}

/// All such paths. Of those that end alike the longest comes first.
pub(crate) const RESPONSE_PAGES: [ResponsePage; 2] = [
    ResponsePage {
        path: "/v1/responses/{id}/cancel",
        allow: "POST",
        summary: "Cancels a response, at the worker that makes it",
        suffix: "/cancel",
    },
    ResponsePage {
        path: "/v1/responses/{id}",
        allow: "GET, DELETE",
        summary: "A response, from the worker that made it",
        suffix: "",
    },
];

/// Request for a response by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseCall<'a> {
    /// Id of the response.
    id: &'a str,
    /// Methods of the path, as `Allow` names them.
    pub(crate) allow: &'static str,
}

impl<'a> ResponseCall<'a> {
    /// Returns the request that a path stands for. `None` where the path is no such path.
    pub(crate) fn of_path(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix(PREFIX)?;
        RESPONSE_PAGES.iter().find_map(|page| {
            let id = rest.strip_suffix(page.suffix)?;
            is_response_id(id).then_some(Self {
                id,
                allow: page.allow,
            })
        })
    }
}

/// Request with the facts that are known of it.
struct ResponseRequest<'a> {
    /// Name of the client. `None` where clients need no key.
    client: Option<&'a str>,
    head: Parts,
    id: HeaderValue,
    arrived: Instant,
    access: AccessHandle,
    body: Incoming,
}

/// Answers a request for a response.
pub(crate) async fn answer(proxy: &Arc<Proxy>, request: Request<Incoming>) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    let seq = proxy.next_seq();
    let snapshot = proxy.snapshots.load();
    let shape = ErrorShape::OpenAi;
    let (client, reservation) = ClientHeaders::enter(proxy, &snapshot, seq, shape, &mut head.headers);
    let arrived = Instant::now();
    let access = AccessHandle::begin(&snapshot.settings.record, || AccessStart {
        seq,
        id: Some(client.id()),
        client: client.name(),
        method: &head.method,
        path: logged_path(head.uri.path()),
        trace: None,
        arrived,
        generation: snapshot.generation.0,
    });
    let request = ResponseRequest {
        client: client.name(),
        head,
        id: client.id().clone(),
        arrived,
        access: access.clone(),
        body,
    };
    // A request that is cut is dropped at the end of this block: that settles its client's usage before the headers of
    // its limits are set.
    let answered = {
        let answering = pin!(async {
            match reservation {
                Ok(reservation) => from_worker(proxy, &snapshot, reservation, request).await,
                Err(refusal) => Err(proxy.unrouted(CLASS, refusal)),
            }
        });
        unless_cut(&proxy.readiness, answering).await
    };
    let mut response = answered.unwrap_or_else(|refusal| {
        access.refused(&refusal);
        client.refuse(&refusal).map(Body::from)
    });
    client.set(response.headers_mut());
    response
}

async fn from_worker(
    proxy: &Proxy,
    snapshot: &Snapshot,
    reservation: Option<RateLimitGuard>,
    request: ResponseRequest<'_>,
) -> Result<Response<Body>, Refusal> {
    let edge = &snapshot.edge.limits;
    let ResponseRequest {
        client,
        mut head,
        id,
        arrived,
        access,
        body,
    } = request;
    let unrouted = |refusal| proxy.unrouted(CLASS, refusal);
    let unknown = || Refusal::UnknownPath {
        path: reply::cut(head.uri.path()),
    };
    let call = ResponseCall::of_path(head.uri.path()).ok_or_else(|| unrouted(unknown()))?;
    let key = ResponseKey { client, id: call.id };
    let (pool, at) = place(proxy, snapshot, key).map_err(unrouted)?;
    let learner = ResponseLearner::of_known(proxy, key.id);
    let (pace, slot) = (edge.pace(snapshot.limits.idle_timeout), snapshot.edge.slot());
    // A request that is cut here has no lifecycle yet, which would count it.
    let read = {
        let headers = &head.headers;
        let reading = body_reader::collect_or_drain(body, headers, LONGEST_BODY, pace, slot, Refusal::from);
        unless_cut(&proxy.readiness, pin!(reading)).await
    };
    let body = read.map_err(unrouted)?;
    headers::for_worker(&mut head.headers);
    head.headers.remove(ACCEPT_ENCODING);
    let target = std::mem::take(&mut head.uri).into_parts().path_and_query;
    let target = target.unwrap_or(PathAndQuery::from_static(PREFIX));
    let member = &pool.workers.members[at];
    let outgoing = OutgoingRequest {
        method: &head.method,
        target: &target,
        headers: &head.headers,
        authorization: &pool.workers.authorization,
        rank: member.worker.spec().rank.map(|rank| rank.0),
        reuse: ConnectionReuse::WithRetry,
        traceparent: None,
        body: &body,
    };
    note_placement(&access, pool, member, body.len());
    let mut lifecycle = begin(proxy, pool, id.clone(), arrived);
    lifecycle.hold(reservation);
    lifecycle.log_access(access);
    let deadline = pool
        .limits
        .request_timeout
        .and_then(|limit| arrived.checked_add(limit));
    lifecycle.must_end(deadline);
    let sent = within(deadline.map(Into::into), send(pool, at, &id, outgoing, deadline)).await;
    let mut placed = match sent {
        Ok(placed) => placed,
        Err(refusal) => return Err(lifecycle.refused(refusal)),
    };
    placed.answer.report.is_shown = snapshot.settings.decision_headers;
    let parts = RelayParts {
        lifecycle,
        endpoint: Endpoint::Responses,
        learner: Some(learner),
    };
    let mut response = stream::response(placed, parts);
    if let Some(deadline) = deadline {
        response.extensions_mut().insert(ResponseDeadline(deadline));
    }
    Ok(response)
}

/// Notes the known worker for the access log.
fn note_placement(access: &AccessHandle, pool: &PoolState, member: &Member, bytes: usize) {
    access.update(|line| {
        line.placement.pool = Some(pool.workers.name.clone());
        line.placement.worker = Some(member.worker.spec().name.clone());
        line.placement.attempts = Some(1);
        line.size.bytes_in = Some(bytes as u64);
    });
}

/// Begins the lifecycle of a request whose worker is known.
fn begin(proxy: &Proxy, pool: &Arc<PoolState>, id: HeaderValue, arrived: Instant) -> Box<RequestLifecycle> {
    let start = MeterStart {
        arrived,
        class: CLASS,
        model: pool.metrics.models.other(),
        stages: StageClock::start(arrived).times(),
    };
    RequestLifecycle::begin(Arc::clone(pool), id, proxy.readiness.clone(), start)
}

/// Returns the path for the access log, without the id.
fn logged_path(path: &str) -> &'static str {
    let page = RESPONSE_PAGES.iter().find(|page| path.ends_with(page.suffix));
    page.map_or(PREFIX, |page| page.path)
}

/// Returns the pool and the member that keep a client's response.
fn place<'a>(
    proxy: &Proxy,
    snapshot: &'a Snapshot,
    key: ResponseKey<'_>,
) -> Result<(&'a Arc<PoolState>, usize), Refusal> {
    let id = key.id;
    let table = &proxy.responses;
    let limits = snapshot.edge.limits.responses();
    let ResponseOrigin::Worker(worker) = table.find(key, limits, Instant::now()) else {
        table.metrics.unknown.inc();
        return Err(Refusal::ResponseUnknown { id: id.into() });
    };
    let mut pools = snapshot.pools.iter();
    let found = pools.find_map(|pool| Some((pool, member_of(pool, worker)?)));
    let placed = match found {
        None => Err(Refusal::ResponseLost { id: id.into() }),
        Some((pool, at)) => check_in_service(&pool.workers.members[at], id).map(|()| (pool, at)),
    };
    match &placed {
        Ok(_) => table.metrics.found.inc(),
        Err(_) => table.metrics.gone.inc(),
    };
    placed
}

/// Sends the request to its worker, because no other has the response. The worker computes nothing, so nothing is
/// booked. For the same reason the request is no trial of an ejected worker, and its status does not count in the
/// worker's health.
async fn send(
    pool: &Arc<PoolState>,
    at: usize,
    id: &HeaderValue,
    outgoing: OutgoingRequest<'_>,
    deadline: Option<Instant>,
) -> Result<PlacedAnswer, Refusal> {
    let (member, limits) = (&pool.workers.members[at], &pool.limits);
    let link = &member.link;
    link.metrics.attempts.inc();
    let token = AttemptToken::Plain;
    let dispatched = Instant::now();
    let forward_limits = SendTimeouts {
        connect: limits.connect_timeout,
        first_byte: limits.first_byte_timeout,
    };
    let response = link
        .upstream
        .forward(outgoing, forward_limits)
        .await
        .inspect_err(|error| {
            link.metrics.failed(FailureKind::from(error));
            let is_ejected = !error.is_blameless() && pool.workers.failed(member, token, error);
            attempt::report(member, id, error, is_ejected);
        })?;
    attempt::heed_retry_after(link, response.status(), response.headers());
    let lease = LoadGuard::unbooked(member.worker.id(), Arc::clone(&pool.queue.controller));
    let answer = Box::new(BegunAnswer {
        response,
        attempt: BegunAttempt {
            member: at,
            lease,
            token,
            dispatched,
            span: AttemptSpan::default(),
        },
        report: DecisionReport::default(),
        timeouts: IdleTimeoutLimits {
            first_byte: limits.first_byte_timeout,
            idle: limits.idle_timeout,
            deadline,
        },
    });
    Ok(PlacedAnswer {
        answer,
        prefill: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_requested_at_its_path() {
        let check = |path: &str, expected: Option<(&str, &'static str)>| {
            let call = ResponseCall::of_path(path).map(|call| (call.id, call.allow));
            assert_eq!(call, expected, "{path}");
        };
        check("/v1/responses/resp_1", Some(("resp_1", "GET, DELETE")));
        check("/v1/responses/resp_1/cancel", Some(("resp_1", "POST")));
        for other in [
            "/v1/responses",
            "/v1/responses/",
            "/v1/responses//cancel",
            "/v1/responses/a/b",
            "/v1/responses/..",
            "/v1/responses/a%2fb",
        ] {
            check(other, None);
        }
    }
}
