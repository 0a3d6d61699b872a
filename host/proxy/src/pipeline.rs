//! One inference request, from its head to its answer's: read, match a route, learn the tokens, decide, send,
//! relay. Failing over ends where the client gets its first byte.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use inference_api::{Endpoint, ErrorShape, Peek};
use placement::{AttemptState, NoCandidate, PlacementOutcome, WorkerPlacement};
use routing::WorkerId;
use tracing::{Instrument, debug_span};

use crate::admission::{self, Asker, Passage, Permit, RequestTerms};
use crate::arrival::Arrival;
use crate::body::Body;
use crate::catalog::{self, RequestModel};
use crate::clients::{Caller, Entry, FieldCheck, UsageBound, Visit};
use crate::context::{self, HashedPrompt, RequestContext};
use crate::crashes::{self, Crashes};
use crate::decide;
use crate::decided_by::DecidedBy;
use crate::exchange::Exchange;
use crate::expectation;
use crate::headers::{self, REQUEST_ID, X_REQUEST_ID};
use crate::intake;
use crate::isolation;
use crate::keep_alive;
use crate::pd::{Course, LegError, PairAnswer, Setback};
use crate::proxy::Proxy;
use crate::realtime;
use crate::relay;
use crate::reply::{self, Limited, Refusal};
use crate::request_id::RequestId;
use crate::request_trace::{asks_to_be_explained, begin_trace};
use crate::responses;
use crate::router_view::HoldWindow;
use crate::server::{Deadline, check_depth};
use crate::snapshot::{PoolState, Snapshot};
use crate::tokens::{self, PromptSender};

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
    // Costs nothing unless someone debugs; warnings name the request themselves.
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
    // The one the client knows, whatever the worker calls it.
    if shape == ErrorShape::Anthropic {
        response.headers_mut().insert(REQUEST_ID, id.clone());
    }
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}

/// The client may not come in. It gets to read so if it is not sending for too long, and nothing is kept of what it sends.
async fn turn_away(proxy: &Proxy, refusal: Refusal, arrival: &Arrival, body: Incoming) -> Refusal {
    proxy.metrics.unrouted(refusal.outcome());
    intake::hear_out(&arrival.headers, body).await;
    refusal
}

async fn answer(
    proxy: &Arc<Proxy>,
    (snapshot, visit): (Arc<Snapshot>, Option<Visit>),
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
    let body = intake::collect_client(body, limits.body_bytes, pace, slot)
        .await
        .map_err(|error| unrouted(error.into()))?;
    let body = arrival.trimmed(body);
    let mut peek = arrival.read(&body).map_err(|error| unrouted(error.into()))?;
    check_depth(&peek, edge).map_err(unrouted)?;
    snapshot.name_model(&mut peek, Some(arrival.path()), &arrival.headers);
    if let Some(visit) = &visit {
        visit.check_model(&peek.model).map_err(unrouted)?;
    }
    let route = snapshot
        .route(&peek.model, Some(arrival.path()), &arrival.headers)
        .ok_or_else(|| unrouted(Refusal::not_served(&peek.model)))?;
    let pool = Arc::clone(snapshot.pool_of(route));
    let mut exchange = Exchange::begin(pool, arrival.id.clone(), arrived);
    exchange.of_client(visit);
    let context = match claim(&mut exchange, &peek, &body) {
        Ok(claim) => context(snapshot, route, (arrival, claim), &peek, body.clone()).await,
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
        visit.put_right(prompt.tokens() as u64);
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
        answer.extensions_mut().insert(Deadline(deadline));
    }
    Ok(answer)
}

/// What comes of a request: a worker's answer, or why there is none.
async fn serve(
    proxy: &Proxy,
    request: Arc<RequestContext>,
    mut exchange: Exchange,
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
            Ok(relay::response(answer, exchange, endpoint, readiness, learner))
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
fn refused(mut exchange: Exchange, refusal: Refusal) -> Refusal {
    if let Refusal::Relayed(answer) = &refusal {
        exchange.answered(answer.status());
    }
    exchange.finish(refusal.outcome());
    refusal
}

/// What was taken for a request.
struct Claim {
    /// What its prompt is estimated to have.
    tokens: usize,
    caller: Option<Arc<Caller>>,
}

/// Takes the prompt, as long as it is estimated to be, from what its client may use.
fn claim(exchange: &mut Exchange, peek: &Peek<'_>, body: &Bytes) -> Result<Claim, Limited> {
    let tokens = context::estimated_tokens(peek, body);
    let mut caller = None;
    if let Some(visit) = exchange.visit() {
        visit.claim(tokens as u64, UsageBound::of(peek, body))?;
        caller = Some(Arc::clone(visit.caller()));
    }
    Ok(Claim { tokens, caller })
}

async fn context(
    snapshot: Arc<Snapshot>,
    route: usize,
    (mut arrival, claim): (Arrival, Claim),
    peek: &Peek<'_>,
    body: Bytes,
) -> Result<RequestContext, Refusal> {
    let pool = snapshot.pool_of(route);
    let terms = RequestTerms::read(pool, &arrival.headers, peek.priority);
    if let Some(caller) = &claim.caller {
        caller.check_fields(FieldCheck {
            route: &snapshot.routes[route],
            pool,
            headers: &arrival.headers,
            peek,
        })?;
    }
    let isolated = isolation_salt(pool, claim.caller.as_deref(), &terms, peek);
    let body = match &isolated {
        Some(salt) => isolation::salted(&body, salt),
        None => body,
    };
    let split = context::split(pool, arrival.endpoint, peek, &body).await?;
    let client = claim.caller.as_deref().map(|caller| &*caller.name);
    let session = context::session(client, &arrival.headers, peek);
    headers::for_worker(&mut arrival.headers);
    pool.authorization.apply(&mut arrival.headers);
    if pool.pd.is_some() {
        headers::for_two_legs(&mut arrival.headers);
    }
    let is_counted = claim.caller.as_ref().is_some_and(|caller| caller.counts_tokens());
    let is_kept = arrival.endpoint == Endpoint::Responses;
    if is_counted || is_kept || pool.keep_alive.is_some() && peek.stream {
        // What is compressed can neither be read nor added to.
        arrival.headers.remove(ACCEPT_ENCODING);
    }
    let served = catalog::look_up(pool, &peek.model).await;
    let asker = Asker {
        route: &snapshot.routes[route],
        pool,
        caller: claim.caller.as_deref(),
        terms: &terms,
    };
    // Making tokens is work, and there may be much to refuse.
    asker.knock(&peek.model)?;
    let assignment = snapshot.routes[route].assign(session, arrival.run.seed(arrival.seq));
    let arm = assignment.map_or(0, |assignment| assignment.arm);
    let recorded = snapshot
        .record
        .wants_tokens(arrival.seq, asks_to_be_explained(&arrival.headers));
    let tokens = if recorded || snapshot.routes[route].needs_tokens(arm) {
        let question = tokens::Question {
            peek,
            body: &body,
            endpoint: arrival.endpoint,
            headers: &arrival.headers,
            sender: PromptSender::of(claim.caller.as_deref(), arrival.from),
            seq: arrival.run.seed(arrival.seq),
            limits: &snapshot.limits,
        };
        tokens::learn(&snapshot.tokenizing, pool, &question).await
    } else {
        None
    };
    if arrival.endpoint.spec().upgrades {
        realtime::ask_for(&mut arrival.headers);
    }
    let model: Box<str> = (&*peek.model).into();
    let salt = isolated.map(Cow::Owned).or_else(|| peek.cache_salt());
    let prompt = tokens.map(|tokens| HashedPrompt::new(tokens, served.adapter(), salt.as_deref()));
    Ok(RequestContext {
        snapshot,
        route,
        assignment,
        seq: arrival.seq,
        run: arrival.run,
        id: arrival.id,
        arrived: arrival.arrived,
        endpoint: arrival.endpoint,
        method: arrival.method,
        target: arrival.target,
        headers: arrival.headers,
        body,
        estimated_tokens: claim.tokens,
        model,
        served: RequestModel::new(served),
        stream: peek.stream,
        max_tokens: peek.max_tokens,
        priority: peek.priority,
        session,
        prompt,
        split,
        trace: None,
        decided_by: DecidedBy::default(),
        is_sent: AtomicBool::new(false),
        crashes: Crashes::default(),
        pinned: None,
        terms,
        caller: claim.caller,
    })
}

/// Returns the `cache_salt` that the router sets where the pool keeps tenants apart. Forms have none.
fn isolation_salt(
    pool: &PoolState,
    caller: Option<&Caller>,
    terms: &RequestTerms,
    peek: &Peek<'_>,
) -> Option<String> {
    if !pool.isolate_prefixes || peek.form_size().is_some() {
        return None;
    }
    let tenant = caller.map_or_else(|| terms.tenant(), |caller| &*caller.tenant);
    Some(isolation::salt(tenant, peek.cache_salt().as_deref()))
}

/// Places it, unless its time is up before: all of it, or that for the beginning of an answer.
async fn in_time(
    proxy: &Proxy,
    request: Arc<RequestContext>,
) -> Result<(PairAnswer, Option<Permit>), Refusal> {
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

/// Has it let in, decides and tries until a worker answers.
async fn place(
    proxy: &Proxy,
    request: Arc<RequestContext>,
    deadline: Option<tokio::time::Instant>,
) -> Result<(PairAnswer, Option<Permit>), Refusal> {
    let pool = request.pool();
    let mut passage = Passage::new(deadline);
    let mut failures = Failures::default();
    let mut course = Course::default();
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
            // Nobody takes the prompt over that is computed: the request begins anew.
            Err(_) if course.forget() || failures.forgive() => continue,
            Err(none) => return Err(failures.refusal(none, &request)),
        };
        attempt += 1;
        match step {
            PlacementOutcome::Dispatch(placement) => {
                passage.send(&request, &placement, failures.tries == 0)?;
                for choice in placement.choices() {
                    expectation::expect(proxy, &request, pool.members[choice.member].worker.id());
                }
                match course.send(proxy, &request, placement).await {
                    Ok(answer) => return Ok((answer, passage.into_permit())),
                    // No other worker has the response.
                    Err(setback) if request.pinned.is_some() => return Err(setback.error.into()),
                    Err(setback) => {
                        if let (LegError::NotServed(_), Some(worker)) = (&setback.error, setback.blamed) {
                            catalog::after_not_found(proxy, &request, worker, &failures.tried).await;
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

/// What was tried in vain.
#[derive(Default)]
struct Failures {
    /// Who is out of the question.
    tried: Vec<WorkerId>,
    /// Of those, who may have failed only because of another.
    suspected: Vec<WorkerId>,
    tries: u32,
    /// Whether a worker answered that it does not serve the model: another is tried once.
    is_not_served: bool,
    last: Option<LegError>,
}

impl Failures {
    /// Another try may be made after that pause, unless this fails.
    fn add(&mut self, setback: Setback, request: &RequestContext) -> Result<Duration, Refusal> {
        self.tried.extend(setback.blamed);
        for suspect in setback.suspected.into_iter().flatten() {
            self.tried.push(suspect);
            self.suspected.push(suspect);
        }
        self.tries += 1;
        let pool = request.pool();
        let error = setback.error;
        let is_not_served = matches!(error, LegError::NotServed(_));
        let is_settled = is_not_served && std::mem::replace(&mut self.is_not_served, true);
        let is_poison = request.crashes.count() >= pool.retries.crashes as usize;
        let may_go_on = !is_poison && !is_settled && error.may_go_elsewhere();
        let pause = if may_go_on && self.tries < pool.limits.attempts {
            pool.retry(&error, self.tries, request.seed())
        } else {
            None
        };
        // What a worker said tells a client more than that the next one was not there.
        let error = match self.last.take() {
            Some(said @ (LegError::Refused(_) | LegError::NotServed(_))) if error.cost_nothing() => said,
            _ => error,
        };
        let Some(pause) = pause else {
            return Err(error.into());
        };
        self.last = Some(error);
        Ok(pause)
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
            (_, Some(said @ LegError::NotServed(_))) => said.into(),
            (NoCandidate::NotServed, _) => Refusal::not_served(&request.model),
            (NoCandidate::CannotSplit, _) if request.dialect_is_unknown() => Refusal::DialectUnknown {
                pool: request.pool().name.clone(),
            },
            (NoCandidate::CannotSplit, _) => Refusal::CannotSplit {
                pool: request.pool().name.clone(),
            },
            (NoCandidate::MissingRole { missing }, _) => Refusal::OneSided {
                pool: request.pool().name.clone(),
                missing,
            },
            (NoCandidate::AllTried, Some(error)) => error.into(),
            (NoCandidate::AllTried, None) => Refusal::NoWorker(None),
        }
    }
}
