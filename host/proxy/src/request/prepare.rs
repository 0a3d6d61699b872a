//! Preparation of a request: reservation against its client's limits, and the context for its decisions.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use inference_api::{Endpoint, Peek};

use crate::base::headers;
use crate::base::reply::{Limited, Refusal};
use crate::dispatch::crashes::Crashes;
use crate::fleet::catalog::{self, RequestModel};
use crate::limits::admission::{PriorityHint, RequestTerms};
use crate::limits::clients::{FieldCheck, Principal, UsageBound};
use crate::observe::decided_by::DecidedBy;
use crate::request::arrival::Arrival;
use crate::request::context::{self, HashedPrompt, RequestContext};
use crate::request::isolation;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::realtime;
use crate::request::snapshot::{PoolState, Snapshot};
use crate::request::trace::asks_to_be_explained;
use crate::tokens::{self, PromptSender, TokenPool};

/// Reservation of a request against its client's limits.
pub(super) struct Claim {
    /// Estimated tokens of its prompt.
    tokens: usize,
    caller: Option<Arc<Principal>>,
}

/// Reserves the estimated prompt tokens of a request against its client's limits.
pub(super) fn claim(
    exchange: &mut RequestLifecycle,
    peek: &Peek<'_>,
    body: &Bytes,
) -> Result<Claim, Limited> {
    let tokens = context::estimated_tokens(peek, body);
    let mut caller = None;
    if let Some(visit) = exchange.visit() {
        visit.claim(tokens as u64, UsageBound::of(peek, body))?;
        caller = Some(Arc::clone(visit.caller()));
    }
    Ok(Claim { tokens, caller })
}

/// Returns the class that a request's body states, where the pool reads it.
fn body_class(pool: &PoolState, peek: &Peek<'_>) -> Option<i64> {
    pool.admission.as_ref()?.class_of_body(peek.priority)
}

/// Builds the context of a request: terms, headers, tokens and model.
pub(super) async fn prepare(
    snapshot: Arc<Snapshot>,
    route: usize,
    (mut arrival, claim): (Arrival, Claim),
    peek: &Peek<'_>,
    body: Bytes,
) -> Result<RequestContext, Refusal> {
    let pool = snapshot.pool_of(route);
    let terms = RequestTerms::read(pool.admission.as_ref(), &arrival.headers, peek.priority);
    if let Some(caller) = &claim.caller {
        caller.check_fields(FieldCheck {
            class: snapshot.routes[route].objectives.priority,
            body_class: body_class(pool, peek),
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
    pool.workers.authorization.apply(&mut arrival.headers);
    if pool.pd.is_some() {
        headers::for_two_legs(&mut arrival.headers);
    }
    let is_counted = claim.caller.as_ref().is_some_and(|caller| caller.counts_tokens());
    let is_kept = arrival.endpoint == Endpoint::Responses;
    if is_counted || is_kept || pool.keep_alive.is_some() && peek.stream {
        // A compressed response can neither be read nor extended.
        arrival.headers.remove(ACCEPT_ENCODING);
    }
    let served = catalog::look_up(&pool.workers, &peek.model).await;
    let asker = PriorityHint {
        route: snapshot.routes[route].objectives.priority,
        caller: claim.caller.as_deref(),
        terms: &terms,
    };
    // Rejected before tokenization, which is expensive.
    let is_served = || pool.workers.serving(&peek.model).next().is_some();
    asker.reject_if_full(&pool.queue, pool.queue_limit, is_served)?;
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
        let token_pool = TokenPool {
            workers: &pool.workers,
            metrics: &pool.metrics.prompts,
            source: pool.tokens,
        };
        tokens::learn(&snapshot.tokenizing, token_pool, &question).await
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

/// Returns the `cache_salt` that the router sets in a pool with isolated tenants. Forms have none.
fn isolation_salt(
    pool: &PoolState,
    caller: Option<&Principal>,
    terms: &RequestTerms,
    peek: &Peek<'_>,
) -> Option<String> {
    if !pool.isolate_prefixes || peek.form_size().is_some() {
        return None;
    }
    let tenant = caller.map_or_else(|| terms.tenant(), |caller| &*caller.tenant);
    Some(isolation::salt(tenant, peek.cache_salt().as_deref()))
}
