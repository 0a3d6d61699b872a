//! Handling of one inference request: read, match a route, tokenize, decide, send and relay.
//!
//! Failover ends when the client receives the first byte.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use inference_api::{Endpoint, ErrorShape};
use placement::{AttemptState, NoCandidate, PlacementOutcome, WorkerPlacement};
use routing::WorkerId;
use tracing::{Instrument, debug_span};

use crate::base::deadline::ResponseDeadline;
use crate::base::headers::{REQUEST_ID, X_REQUEST_ID};
use crate::base::reply::{self, Refusal};
use crate::base::request_id::RequestId;
use crate::dispatch::crashes;
use crate::dispatch::decide;
use crate::dispatch::router_view::HoldWindow;
use crate::dispatch::speculative_insert;
use crate::dispatch::split::{AttemptError, AttemptFailure, RetryState, UpstreamResponse};
use crate::fleet::catalog;
use crate::limits::admission::{self, AdmissionSession, Permit};
use crate::limits::clients::{Entry, RateLimitGuard};
use crate::proxy::Proxy;
use crate::request::arrival::Arrival;
use crate::request::body_reader;
use crate::request::context::RequestContext;
use crate::request::keep_alive;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::prepare::{claim, prepare};
use crate::request::realtime;
use crate::request::response_body::Body;
use crate::request::responses;
use crate::request::snapshot::Snapshot;
use crate::request::stream;
use crate::request::trace::begin_trace;

/// Answers a request to an inference endpoint.
pub(crate) async fn infer(
    proxy: &Arc<Proxy>,
    endpoint: Endpoint,
    request: Request<Incoming>,
    from: Option<IpAddr>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (seq, mut headers) = (proxy.next_seq(), head.headers);
    let id = headers.entry(X_REQUEST_ID);
    let id = id.or_insert_with(|| proxy.request_id(seq)).clone();
    let snapshot = proxy.snapshots.load();
    let Entry { caller, visit } = snapshot.clients.enter(&mut headers);
    let target = head.uri.into_parts().path_and_query;
    let arrival = Arrival {
        endpoint,
        seq,
        run: proxy.run,
        id: id.clone(),
        from,
        arrived: Instant::now(),
        method: head.method,
        target: target.unwrap_or(PathAndQuery::from_static(endpoint.path())),
        headers,
    };
    let shape = endpoint.spec().errors;
    // Costs nothing unless debug logs are on. Warnings name the request themselves.
    let span = debug_span!("request", id = %RequestId(&id), path = arrival.path());
    let answered = async {
        let answer = match visit {
            Ok(visit) => answer(proxy, (snapshot, visit), arrival, body).await,
            Err(refusal) => Err(turn_away(proxy, refusal, &arrival, body).await),
        };
        answer.unwrap_or_else(|refusal| reply::refuse_in(shape, Some(&id), &refusal).map(Body::from))
    };
    let mut response = answered.instrument(span).await;
    if let Some(caller) = caller {
        caller.tell_limits(response.headers_mut());
    }
    // The client gets its own request id, whatever the worker's is.
    if shape == ErrorShape::Anthropic {
        response.headers_mut().insert(REQUEST_ID, id.clone());
    }
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}

/// Refuses a client that may not come in. Its body is discarded for a limited time, so that the client gets to read the
/// refusal.
async fn turn_away(proxy: &Proxy, refusal: Refusal, arrival: &Arrival, body: Incoming) -> Refusal {
    proxy.metrics.unrouted(refusal.outcome());
    body_reader::hear_out(&arrival.headers, body).await;
    refusal
}

async fn answer(
    proxy: &Arc<Proxy>,
    (snapshot, visit): (Arc<Snapshot>, Option<RateLimitGuard>),
    arrival: Arrival,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let (endpoint, arrived) = (arrival.endpoint, arrival.arrived);
    let unrouted = |refusal: Refusal| {
        proxy.metrics.unrouted(refusal.outcome());
        proxy.metrics.edge.refused(&refusal);
        refusal
    };
    let limits = &snapshot.limits;
    let edge = &snapshot.edge.limits;
    let (pace, slot) = (edge.pace(limits.idle_timeout), snapshot.edge.slot());
    let body = body_reader::collect_client(body, limits.body_bytes, pace, slot)
        .await
        .map_err(|error| unrouted(error.into()))?;
    let body = arrival.trimmed(body);
    let mut peek = arrival.read(&body).map_err(|error| unrouted(error.into()))?;
    edge.check_depth(&peek).map_err(unrouted)?;
    snapshot.name_model(&mut peek, Some(arrival.path()), &arrival.headers);
    if let Some(visit) = &visit {
        visit.check_model(&peek.model).map_err(unrouted)?;
    }
    let route = snapshot
        .route(&peek.model, Some(arrival.path()), &arrival.headers)
        .ok_or_else(|| unrouted(Refusal::not_served(&peek.model)))?;
    let pool = Arc::clone(snapshot.pool_of(route));
    let mut exchange = RequestLifecycle::begin(pool, arrival.id.clone(), arrived);
    exchange.of_client(visit);
    let context = match claim(&mut exchange, &peek, &body) {
        Ok(claim) => prepare(snapshot, route, (arrival, claim), &peek, body.clone()).await,
        Err(limited) => Err(Refusal::Limited(limited)),
    };
    let mut request = match context {
        Ok(request) => request,
        Err(refusal) => return Err(refused(exchange, refusal)),
    };
    if endpoint == Endpoint::Responses
        && let Some(id) = peek.previous_response_id()
    {
        request.pinned = match responses::pinned(proxy, &request, &id) {
            Ok(pinned) => pinned,
            Err(refusal) => return Err(refused(exchange, refusal)),
        };
    }
    exchange.join(request.enrollment());
    if let (Some(visit), Some(prompt)) = (exchange.visit(), &request.prompt) {
        visit.reconcile(prompt.tokens() as u64);
    }
    request.trace = begin_trace(&request);
    exchange.record(request.trace.clone());
    let keep_alive = request.pool().keep_alive.clone().filter(|_| request.stream);
    let deadline = request.deadline();
    exchange.must_end(deadline);
    // Takes the request, and with it the snapshot: the answer may go on long after both.
    let request = Arc::new(request);
    let answer = match keep_alive {
        None => serve(proxy, request, exchange).await,
        Some(keep_alive) => {
            let (readiness, proxy) = (proxy.readiness.clone(), Arc::clone(proxy));
            let serving = async move { serve(&proxy, request, exchange).await };
            keep_alive::answer(keep_alive, endpoint, readiness, serving).await
        }
    };
    let mut answer = answer?;
    if let Some(deadline) = deadline {
        answer.extensions_mut().insert(ResponseDeadline(deadline));
    }
    Ok(answer)
}

/// Serves a request. Returns a worker's answer, or the refusal.
async fn serve(
    proxy: &Proxy,
    request: Arc<RequestContext>,
    mut exchange: RequestLifecycle,
) -> Result<Response<Body>, Refusal> {
    let endpoint = request.endpoint;
    match in_time(proxy, Arc::clone(&request)).await {
        Ok((answer, permit)) => {
            exchange.admit(permit);
            if answer.answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return realtime::response(answer, exchange);
            }
            let learner = responses::learner(proxy, &request, answer.answer.member);
            let readiness = proxy.readiness.clone();
            Ok(stream::response(answer, exchange, endpoint, readiness, learner))
        }
        Err(refusal) => {
            if request.is_sent.load(Ordering::Relaxed) {
                exchange.sent();
            }
            Err(refused(exchange, refusal))
        }
    }
}

/// Accounts for a request that no worker answers.
fn refused(mut exchange: RequestLifecycle, refusal: Refusal) -> Refusal {
    if let Refusal::Relayed(answer) = &refusal {
        exchange.answered(answer.status());
    }
    exchange.finish(refusal.outcome());
    refusal
}

/// Places the request, within its time limits: for the whole of it, and for the beginning of an answer.
async fn in_time(
    proxy: &Proxy,
    request: Arc<RequestContext>,
) -> Result<(UpstreamResponse, Option<Permit>), Refusal> {
    request.pool().budget.earn();
    let of_all = request.deadline().map(tokio::time::Instant::from_std);
    let deadline = of_all.into_iter().chain(admission::deadline(&request)).min();
    let placing = pin!(place(proxy, Arc::clone(&request), deadline));
    let placed = match deadline {
        None => placing.await,
        Some(deadline) => {
            let placed = tokio::time::timeout_at(deadline, placing).await;
            placed.unwrap_or(Err(Refusal::RequestTimeout))
        }
    };
    crashes::settle(&request, placed.is_ok());
    placed
}

/// Admits the request, decides, and tries until a worker answers.
async fn place(
    proxy: &Proxy,
    request: Arc<RequestContext>,
    deadline: Option<tokio::time::Instant>,
) -> Result<(UpstreamResponse, Option<Permit>), Refusal> {
    let pool = request.pool();
    let mut passage = AdmissionSession::new(deadline);
    let mut failures = Failures::default();
    let mut course = RetryState::default();
    let mut attempt = 0;
    passage.enter(&request).await?;
    loop {
        let released = pool.queue.releases();
        let state = AttemptState {
            attempt,
            tried: &failures.tried,
            is_held: passage.is_held(),
        };
        let window = HoldWindow {
            turn: passage.turn(),
            deadline,
        };
        let step = match request.pinned {
            Some(member) => Ok(PlacementOutcome::Dispatch(WorkerPlacement::alone(member))),
            None => decide::decide(proxy, &request, course.part(), (state, window)),
        };
        let step = match step {
            Ok(step) => step,
            // No worker takes over the computed prompt. The request begins again.
            Err(_) if course.forget() || failures.forgive() => continue,
            Err(none) => return Err(failures.refusal(none, &request)),
        };
        attempt += 1;
        match step {
            PlacementOutcome::Dispatch(placement) => {
                passage.send(&request, &placement, failures.tries == 0)?;
                for choice in placement.choices() {
                    speculative_insert::expect(
                        proxy,
                        &request,
                        pool.workers.members[choice.member].worker.id(),
                    );
                }
                match course.send(proxy, &request, placement).await {
                    Ok(answer) => return Ok((answer, passage.into_permit())),
                    // No other worker has the response.
                    Err(setback) if request.pinned.is_some() => return Err(setback.error.into()),
                    Err(setback) => {
                        if let (AttemptError::NotServed(_), Some(worker)) = (&setback.error, setback.blamed) {
                            let pool = &request.snapshot.pool_of(request.route).workers;
                            let model = (&*request.model, &request.served);
                            catalog::after_not_found(&proxy.background, pool, model, worker, &failures.tried)
                                .await;
                        }
                        tokio::time::sleep(failures.add(setback, &request)?).await;
                    }
                }
            }
            PlacementOutcome::Hold(terms) => passage.hold(&request, terms, released).await?,
            PlacementOutcome::Reject(rejection) => {
                let is_told = request.snapshot.decision_headers;
                let policy = is_told.then(|| request.decided_by.header()).flatten();
                return Err(Refusal::Rejected { rejection, policy });
            }
        }
    }
}

/// Failed attempts of a request.
#[derive(Default)]
struct Failures {
    /// Workers that are excluded.
    tried: Vec<WorkerId>,
    /// Excluded workers that may have failed only because of another one.
    suspected: Vec<WorkerId>,
    tries: u32,
    /// `true` once a worker answered that it does not serve the model. Another worker is tried once.
    is_not_served: bool,
    last: Option<AttemptError>,
}

impl Failures {
    /// Records a failure. Returns the pause before the next attempt, or the refusal if there is none.
    fn add(&mut self, setback: AttemptFailure, request: &RequestContext) -> Result<Duration, Refusal> {
        self.tried.extend(setback.blamed);
        for suspect in setback.suspected.into_iter().flatten() {
            self.tried.push(suspect);
            self.suspected.push(suspect);
        }
        self.tries += 1;
        let pool = request.pool();
        let error = setback.error;
        let is_not_served = matches!(error, AttemptError::NotServed(_));
        let is_settled = is_not_served && std::mem::replace(&mut self.is_not_served, true);
        let is_poison = request.crashes.count() >= pool.retries.crashes as usize;
        let may_go_on = !is_poison && !is_settled && error.may_go_elsewhere();
        let pause = if may_go_on && self.tries < pool.limits.attempts {
            pool.retry(&error, self.tries, request.seed())
        } else {
            None
        };
        // A worker's answer is more useful to a client than the failure to reach the next worker.
        let error = match self.last.take() {
            Some(said @ (AttemptError::Refused(_) | AttemptError::NotServed(_))) if error.cost_nothing() => {
                said
            }
            _ => error,
        };
        let Some(pause) = pause else {
            return Err(error.into());
        };
        self.last = Some(error);
        Ok(pause)
    }

    /// Readmits one worker that was only suspected, once, because no other is left. Returns `true` if there is one.
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
                pool: request.pool().workers.name.clone(),
            },
            (_, Some(said @ AttemptError::NotServed(_))) => said.into(),
            (NoCandidate::NotServed, _) => Refusal::not_served(&request.model),
            (NoCandidate::CannotSplit, _) if request.dialect_is_unknown() => Refusal::DialectUnknown {
                pool: request.pool().workers.name.clone(),
            },
            (NoCandidate::CannotSplit, _) => Refusal::CannotSplit {
                pool: request.pool().workers.name.clone(),
            },
            (NoCandidate::MissingRole { missing }, _) => Refusal::OneSided {
                pool: request.pool().workers.name.clone(),
                missing,
            },
            (NoCandidate::AllTried, Some(error)) => error.into(),
            (NoCandidate::AllTried, None) => Refusal::NoWorker(None),
        }
    }
}
