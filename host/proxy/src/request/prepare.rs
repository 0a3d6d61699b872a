//! Preparation of a request: reservation against its client's limits, and the context for its decisions.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use inference_api::{Endpoint, Peek};

use crate::base::headers;
use crate::base::reply::{Limited, Refusal};
use crate::dispatch::hashed_prompt::HashedPrompt;
use crate::dispatch::inference_request::{DispatchProgress, InferenceRequest, RequestParams, RequestSender};
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::request_head::RequestHead;
use crate::dispatch::request_policies::RequestPolicies;
use crate::dispatch::request_pool::RequestPool;
use crate::fleet::catalog::{self, RequestModel};
use crate::limits::admission::{PriorityHint, RequestTerms};
use crate::limits::clients::{FieldCheck, Principal, UsageBound};
use crate::observe::stages::RequestStage;

use crate::request::body_facts;
use crate::request::isolation;
use crate::request::lifecycle::RequestLifecycle;
use crate::request::realtime;
use crate::request::snapshot::Snapshot;
use crate::request::trace::requests_explanation;
use crate::tokens::{self, PromptSender, PromptTokens, TokenPool};

/// Reservation of a request against its client's limits.
pub(super) struct Claim {
    /// Estimated tokens of its prompt.
    tokens: usize,
    client: Option<Arc<Principal>>,
}

/// Reserves the estimated prompt tokens of a request against its client's limits.
pub(super) fn claim(
    lifecycle: &mut RequestLifecycle,
    peek: &Peek<'_>,
    body: &Bytes,
) -> Result<Claim, Limited> {
    let tokens = body_facts::estimated_tokens(peek, body);
    let mut client = None;
    if let Some(reservation) = lifecycle.reservation() {
        reservation.claim(tokens as u64, UsageBound::of(peek, body))?;
        client = Some(Arc::clone(reservation.client()));
    }
    Ok(Claim { tokens, client })
}

/// Returns the class that a request's body states, where the pool reads it.
fn body_class(pool: &PoolState, peek: &Peek<'_>) -> Option<i64> {
    pool.queue.admission.as_ref()?.class_of_body(peek.priority)
}

/// Request whose route is known.
#[derive(Clone, Copy)]
pub(super) struct RoutedRequest<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Index of the route.
    pub(super) route: usize,
    pub(super) peek: &'a Peek<'a>,
    /// Set if the front end can send a request to two workers.
    pub(super) may_split: bool,
}

/// Builds the request that is placed: terms, headers, tokens and model.
pub(super) async fn prepare(
    routed: RoutedRequest<'_>,
    mut head: Box<RequestHead>,
    claim: Claim,
    body: Bytes,
) -> Result<InferenceRequest, Refusal> {
    let RoutedRequest {
        snapshot,
        route,
        peek,
        may_split,
    } = routed;
    let pool = snapshot.pool_of(route);
    let policies = &snapshot.routes[route].policies;
    let terms = RequestTerms::read(pool.queue.admission.as_ref(), &head.headers, peek.priority);
    if let Some(client) = &claim.client {
        client.check_fields(FieldCheck {
            class: policies.objectives.priority,
            body_class: body_class(pool, peek),
            headers: &head.headers,
            peek,
        })?;
    }
    let isolated = isolation_salt(pool, claim.client.as_deref(), &terms, peek);
    let body = match &isolated {
        Some(salt) => isolation::salted(&body, salt),
        None => body,
    };
    let split = body_facts::split(pool, head.endpoint, peek, &body, may_split).await?;
    let client_name = claim.client.as_deref().map(|client| &*client.name);
    let session = body_facts::session(client_name, &head.headers, peek);
    worker_headers(&mut head, &body, pool, claim.client.as_deref(), peek.stream);
    let served = catalog::look_up(&pool.workers, &peek.model).await;
    let hint = PriorityHint {
        route: policies.objectives.priority,
        client: claim.client.as_deref(),
        terms: &terms,
    };
    // Rejected before tokenization, which is expensive.
    let is_served = || pool.workers.serving(&peek.model).next().is_some();
    hint.reject_if_full(&pool.queue.controller, pool.queue.limit, is_served)?;
    let assignment = policies.assign(session, head.run.seed(head.seq));
    let arm = assignment.map_or(0, |assignment| assignment.arm);
    let needed = needed_tokens(&routed, arm, &head, &body, claim.client.as_deref());
    let (tokens, tokens_took) = needed.await;
    if head.endpoint.spec().upgrades {
        realtime::request_upgrade(&mut head.headers);
    }
    let model: Box<str> = (&*peek.model).into();
    let salt = isolated.map(Cow::Owned).or_else(|| peek.cache_salt());
    let salt = isolation::lookup_salt(salt, peek.extra_key());
    let prompt = tokens.map(|tokens| HashedPrompt::new(tokens, served.adapter(), salt.as_deref()));
    Ok(InferenceRequest {
        pool: RequestPool::new(Arc::clone(pool), RequestModel::new(served)),
        policies: RequestPolicies::new(Arc::clone(policies), arm),
        settings: Arc::clone(&snapshot.settings),
        assignment,
        head,
        body,
        params: RequestParams {
            estimated_tokens: claim.tokens,
            model,
            stream: peek.stream,
            max_tokens: peek.max_tokens,
            priority: peek.priority,
            session,
            prompt,
            tokens_took,
        },
        split,
        sender: RequestSender {
            terms,
            client: claim.client,
        },
        progress: DispatchProgress::default(),
    })
}

/// Makes the headers of the request to a worker from the client's.
fn worker_headers(
    head: &mut RequestHead,
    body: &Bytes,
    pool: &PoolState,
    client: Option<&Principal>,
    is_stream: bool,
) {
    headers::for_worker_with(&mut head.headers, body.len());
    if pool.pd.is_some() {
        headers::for_two_legs(&mut head.headers);
    }
    let is_counted = client.is_some_and(Principal::counts_tokens);
    let is_kept = head.endpoint == Endpoint::Responses;
    if is_counted || is_kept || pool.keep_alive.is_some() && is_stream {
        // A compressed response can neither be read nor extended.
        head.headers.remove(ACCEPT_ENCODING);
    }
}

/// Returns the tokens of the prompt where the policy or the decision log needs them, and the time that this took.
async fn needed_tokens(
    routed: &RoutedRequest<'_>,
    arm: usize,
    head: &RequestHead,
    body: &Bytes,
    client: Option<&Principal>,
) -> (Option<PromptTokens>, Option<Duration>) {
    let snapshot = routed.snapshot;
    let is_recorded = snapshot
        .settings
        .record
        .needs_tokens(head.seq, requests_explanation(&head.headers));
    if !is_recorded && !snapshot.routes[routed.route].policies.needs_tokens(arm) {
        return (None, None);
    }
    let started = Instant::now();
    let tokens = tokenize_prompt(routed, head, body, PromptSender::of(client, head.from)).await;
    head.watch.took(RequestStage::Tokens, started);
    (tokens, Some(started.elapsed()))
}

/// Returns the tokens of the prompt, if they are known in time.
async fn tokenize_prompt(
    routed: &RoutedRequest<'_>,
    head: &RequestHead,
    body: &Bytes,
    sender: PromptSender,
) -> Option<PromptTokens> {
    let snapshot = routed.snapshot;
    let pool = snapshot.pool_of(routed.route);
    let to_tokenize = tokens::TokenizeRequest {
        peek: routed.peek,
        body,
        endpoint: head.endpoint,
        headers: &head.headers,
        sender,
        seq: head.run.seed(head.seq),
        limits: &snapshot.limits,
        is_kept: true,
    };
    let token_pool = TokenPool {
        workers: &pool.workers,
        metrics: &pool.metrics.prompts,
        source: pool.prompts.tokens,
    };
    tokens::tokenize(&snapshot.tokenizing, token_pool, &to_tokenize).await
}

/// Returns the `cache_salt` that the router sets in a pool with isolated tenants. Forms have none.
fn isolation_salt(
    pool: &PoolState,
    client: Option<&Principal>,
    terms: &RequestTerms,
    peek: &Peek<'_>,
) -> Option<String> {
    if !pool.bodies.isolate_prefixes || peek.form_size().is_some() {
        return None;
    }
    let tenant = client.map_or_else(|| terms.tenant(), |client| &*client.tenant);
    Some(isolation::salt(tenant, peek.cache_salt().as_deref()))
}
