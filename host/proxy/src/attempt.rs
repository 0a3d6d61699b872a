//! One attempt: book the load, send, and learn from it whether the worker is there.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Response};
use tracing::{debug, warn};

use crate::context::RequestContext;
use crate::cooldown::Dispatch;
use crate::decide::Placement;
use crate::exchange::Booking;
use crate::forward::{ForwardError, ForwardLimits, Outgoing, forward};
use crate::request_id::RequestId;
use crate::snapshot::Member;
use crate::upstream::WorkerBody;

/// A worker's answer, with everything that lives as long as its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<WorkerBody>,
    pub(crate) booking: Booking,
    /// Index into the pool's members.
    pub(crate) member: usize,
    /// What the request was to the worker, whose health shows with the first byte of the body.
    pub(crate) dispatch: Dispatch,
    pub(crate) dispatched: Instant,
    /// Tokens of the prompt the index says the worker holds; none where the tokens or the matches are unknown.
    pub(crate) matched: Option<u32>,
}

pub(crate) async fn send(request: &RequestContext, placement: Placement) -> Result<Answer, ForwardError> {
    let pool = request.pool();
    let member = &pool.members[placement.member];
    let link = &member.link;
    let booking = Booking::new(book(request, placement), Arc::clone(&pool.queue));
    let limits = &request.snapshot.limits;
    let limits = ForwardLimits {
        connect: limits.connect_timeout,
        first_byte: limits.first_byte_timeout,
    };
    let outgoing = Outgoing {
        method: &Method::POST,
        target: &request.target,
        headers: &request.headers,
        body: &request.body,
    };
    debug!(
        seq = request.seq,
        worker = &*member.worker.spec().name,
        matched = placement.matched,
        "sending a request"
    );
    link.metrics.attempts.inc();
    let dispatch = link.begin();
    let dispatched = Instant::now();
    match forward(&link.upstream, outgoing, limits).await {
        Ok(response) => Ok(Answer {
            response,
            booking,
            member: placement.member,
            dispatch,
            dispatched,
            matched: request.prompt.as_ref().and(placement.matched),
        }),
        Err(error) => {
            link.metrics.failed(error.kind());
            let rests = link.cooldown.failed(dispatch, link.now_ms());
            report(member, &request.id, &error, rests);
            Err(error)
        }
    }
}

fn report(member: &Member, id: &HeaderValue, error: &ForwardError, rests: bool) {
    let worker = &*member.worker.spec().name;
    let held_back = || member.link.failure_log.pass();
    let (id, chain) = (RequestId(id), error as &dyn std::error::Error);
    if rests {
        warn!(worker, request = %id, error = chain, "a worker failed to answer and rests");
    } else if !error.may_go_elsewhere()
        && let Some(held_back) = held_back()
    {
        warn!(worker, request = %id, error = chain, held_back, "a worker failed to answer");
    } else {
        debug!(worker, request = %id, error = chain, "an attempt failed");
    }
}

fn book(request: &RequestContext, placement: Placement) -> routing::LoadLease {
    let pool = request.pool();
    let prompt = request.prompt_tokens();
    let matched = placement.matched.unwrap_or(0);
    if request.prompt.is_some() {
        pool.metrics.prompt_tokens.inc_by(prompt.into());
        pool.metrics.matched_tokens.inc_by(matched.into());
        pool.metrics.matched_lengths.observe(matched.into());
    }
    let load = pool.members[placement.member].worker.load();
    load.book(prompt, prompt.saturating_sub(matched))
}
