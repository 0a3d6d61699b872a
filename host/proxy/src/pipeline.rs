//! One inference request, from its head to its answer's: read, match a route, learn the tokens, decide, send,
//! relay. Failing over ends where the client gets its first byte.

use std::sync::Arc;
use std::time::Instant;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use inference_api::Endpoint;
use routing::WorkerId;
use tracing::{Instrument, debug_span};

use crate::body::Body;
use crate::candidates::{NoCandidate, Standing};
use crate::context::{self, HashedPrompt, RequestContext};
use crate::decide::{self, Step};
use crate::decided_by::DecidedBy;
use crate::exchange::Exchange;
use crate::expectation;
use crate::headers::{self, X_REQUEST_ID};
use crate::hold::{Ticket, Turn};
use crate::intake;
use crate::pd::{Course, LegError, PairAnswer, Setback};
use crate::proxy::Proxy;
use crate::record::Trace;
use crate::relay;
use crate::reply::{self, Refusal};
use crate::request_id::RequestId;
use crate::snapshot::Snapshot;
use crate::tokens;

/// Answers a request to an inference endpoint.
pub(crate) async fn infer(proxy: &Proxy, endpoint: Endpoint, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (seq, mut headers) = (proxy.next_seq(), head.headers);
    let id = headers.entry(X_REQUEST_ID);
    let id = id.or_insert_with(|| proxy.request_id(seq)).clone();
    let arrival = Arrival {
        endpoint,
        seq,
        id: id.clone(),
        arrived: Instant::now(),
        target: head.uri.into_parts().path_and_query,
        headers,
    };
    // Costs nothing unless someone debugs; warnings name the request themselves.
    let span = debug_span!("request", id = %RequestId(&id), path = endpoint.path());
    let answered = async {
        match answer(proxy, arrival, body).await {
            Ok(response) => response,
            Err(refusal) => reply::refuse(&refusal).map(Body::from),
        }
    };
    let mut response = answered.instrument(span).await;
    // The one the client knows, whatever the worker calls it.
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}

/// A request's head.
struct Arrival {
    endpoint: Endpoint,
    seq: u64,
    id: HeaderValue,
    arrived: Instant,
    target: Option<PathAndQuery>,
    headers: HeaderMap,
}

async fn answer(proxy: &Proxy, arrival: Arrival, body: Incoming) -> Result<Response<Body>, Refusal> {
    let (endpoint, arrived) = (arrival.endpoint, arrival.arrived);
    let snapshot = proxy.snapshots.load();
    let unrouted = |refusal: Refusal| {
        proxy.metrics.unrouted(refusal.outcome());
        refusal
    };
    let limits = &snapshot.limits;
    let body = intake::collect(body, limits.body_bytes, limits.idle_timeout)
        .await
        .map_err(|error| unrouted(error.into()))?;
    let peek = inference_api::peek(endpoint, &body).map_err(|error| unrouted(error.into()))?;
    let route = snapshot
        .route(&peek.model, Some(endpoint.path()), &arrival.headers)
        .ok_or_else(|| unrouted(Refusal::not_served(&peek.model)))?;
    let pool = Arc::clone(snapshot.pool_of(route));
    let mut exchange = Exchange::begin(pool, arrival.id.clone(), arrived);
    let placed = match context(snapshot, route, arrival, &peek, body.clone()).await {
        // Takes the request, and with it the snapshot: the answer may go on long after both.
        Ok(mut request) => {
            exchange.join(request.participant());
            request.trace = Trace::begin(&request);
            exchange.record(request.trace.clone());
            place(proxy, Arc::new(request)).await
        }
        Err(refusal) => Err(refusal),
    };
    match placed {
        Ok(answer) => Ok(relay::response(
            answer,
            exchange,
            endpoint,
            proxy.readiness.clone(),
        )),
        Err(refusal) => {
            if let Refusal::Relayed(answer) = &refusal {
                exchange.answered(answer.status());
            }
            exchange.finish(refusal.outcome());
            Err(refusal)
        }
    }
}

async fn context(
    snapshot: Arc<Snapshot>,
    route: usize,
    mut arrival: Arrival,
    peek: &inference_api::Peek<'_>,
    body: bytes::Bytes,
) -> Result<RequestContext, Refusal> {
    let split = context::split(snapshot.pool_of(route), arrival.endpoint, peek, &body)?;
    let session = context::session(&arrival.headers, peek);
    let pool = snapshot.pool_of(route);
    headers::for_worker(&mut arrival.headers);
    pool.authorization.apply(&mut arrival.headers);
    if pool.pd.is_some() {
        headers::for_two_legs(&mut arrival.headers);
    }
    let place = snapshot.routes[route].place(session, arrival.seq);
    let arm = place.map_or(0, |place| place.arm);
    let recorded = snapshot.record.wants_tokens(arrival.seq, &arrival.headers);
    let tokens = if recorded || snapshot.routes[route].needs_tokens(arm) {
        tokens::learn(pool, peek, arrival.seq, &arrival.headers, &snapshot.limits).await
    } else {
        None
    };
    let model: Box<str> = (&*peek.model).into();
    let prompt = tokens.map(|tokens| {
        let is_adapter = snapshot.pool_of(route).adapters.contains(&model);
        HashedPrompt::new(
            tokens,
            is_adapter.then_some(&*model),
            peek.cache_salt().as_deref(),
        )
    });
    let path = || PathAndQuery::from_static(arrival.endpoint.path());
    Ok(RequestContext {
        snapshot,
        route,
        place,
        seq: arrival.seq,
        id: arrival.id,
        arrived: arrival.arrived,
        endpoint: arrival.endpoint,
        target: arrival.target.unwrap_or_else(path),
        headers: arrival.headers,
        body,
        model,
        stream: peek.stream,
        max_tokens: peek.max_tokens,
        priority: peek.priority,
        session,
        prompt,
        split,
        trace: None,
        decided_by: DecidedBy::default(),
    })
}

/// Decides and tries until a worker answers.
async fn place(proxy: &Proxy, request: Arc<RequestContext>) -> Result<PairAnswer, Refusal> {
    let pool = request.pool();
    let mut turn: Option<Turn> = None;
    let mut ticket: Option<Ticket> = None;
    let mut failures = Failures::default();
    let mut course = Course::default();
    let mut attempt = 0;
    loop {
        let released = pool.queue.releases();
        let standing = Standing {
            attempt,
            tried: &failures.tried,
            turn,
            is_held: ticket.is_some(),
        };
        let step = match decide::decide(proxy, &request, course.part(), standing) {
            Ok(step) => step,
            // Nobody takes the prompt over that is computed: the request begins anew.
            Err(_) if course.forget() || failures.forgive() => continue,
            Err(none) => return Err(failures.refusal(none, &request)),
        };
        attempt += 1;
        match step {
            Step::Send(placement) => {
                if let Some(ticket) = ticket.take() {
                    ticket.sent();
                }
                for seat in placement.seats() {
                    expectation::expect(proxy, &request, pool.members[seat.member].worker.id());
                }
                match course.send(proxy, &request, placement).await {
                    Ok(answer) => return Ok(answer),
                    Err(setback) => failures.add(setback, request.snapshot.limits.attempts)?,
                }
            }
            Step::Hold(hold) => {
                let turn = turn.get_or_insert_with(|| pool.queue.turn(pool.queue_timeout));
                let mut place = match ticket.take() {
                    Some(place) => place,
                    None => pool
                        .queue
                        .enter(*turn, pool.queue_limit)
                        .map_err(|_| Refusal::QueueFull)?,
                };
                place
                    .wait(hold, released)
                    .await
                    .map_err(|_| Refusal::QueueTimeout)?;
                ticket = Some(place);
            }
            Step::Reject(rejection) => return Err(Refusal::Rejected(rejection)),
        }
    }
}

/// What was tried in vain.
#[derive(Default)]
struct Failures {
    /// Who is out of the question.
    tried: Vec<WorkerId>,
    /// Of those, who may have failed only because of another.
    suspected: Vec<WorkerId>,
    tries: u32,
    last: Option<LegError>,
}

impl Failures {
    /// Another try may be made unless this returns.
    fn add(&mut self, setback: Setback, most: u32) -> Result<(), Refusal> {
        self.tried.extend(setback.blamed);
        for suspect in setback.suspected.into_iter().flatten() {
            self.tried.push(suspect);
            self.suspected.push(suspect);
        }
        self.tries += 1;
        if !setback.error.may_go_elsewhere() || self.tries >= most {
            return Err(setback.error.into());
        }
        self.last = Some(setback.error);
        Ok(())
    }

    /// There is nobody else: one who was only suspected is in question again, once. Whether there is one.
    fn forgive(&mut self) -> bool {
        let Some(suspect) = self.suspected.pop() else {
            return false;
        };
        self.tried.retain(|worker| *worker != suspect);
        true
    }

    fn refusal(&mut self, none: NoCandidate, request: &RequestContext) -> Refusal {
        match (none, self.last.take()) {
            (NoCandidate::EmptyPool, _) => Refusal::PoolEmpty {
                pool: request.pool().name.clone(),
            },
            (NoCandidate::NotServed, _) => Refusal::not_served(&request.model),
            (NoCandidate::NobodyAlone, _) => Refusal::CannotSplit {
                pool: request.pool().name.clone(),
            },
            (NoCandidate::OneSided { missing }, _) => Refusal::OneSided {
                pool: request.pool().name.clone(),
                missing,
            },
            (NoCandidate::AllTried, Some(error)) => error.into(),
            (NoCandidate::AllTried, None) => Refusal::NoWorker(None),
        }
    }
}
