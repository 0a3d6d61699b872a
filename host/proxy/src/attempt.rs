//! One attempt: book the load, send, and learn from it whether the worker is there.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, Response};
use tracing::{debug, warn};

use crate::context::RequestContext;
use crate::decide::Placement;
use crate::exchange::Booking;
use crate::forward::{ForwardError, ForwardLimits, Outgoing, forward};
use crate::snapshot::Member;
use crate::upstream::WorkerBody;

/// A worker's answer, with everything that lives as long as its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<WorkerBody>,
    pub(crate) booking: Booking,
    /// Index into the pool's members.
    pub(crate) member: usize,
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
        Ok(response) => {
            link.cooldown.succeeded();
            Ok(Answer {
                response,
                booking,
                member: placement.member,
                dispatched,
                matched: request.tokens.as_ref().and(placement.matched),
            })
        }
        Err(error) => {
            link.metrics.failed(error.kind());
            let rests = error.is_unreachable() && link.cooldown.failed(dispatch, link.now_ms());
            report(member, &error, rests);
            Err(error)
        }
    }
}

fn report(member: &Member, error: &ForwardError, rests: bool) {
    let worker = &*member.worker.spec().name;
    let held_back = || member.link.failure_log.pass();
    let chain = error as &dyn std::error::Error;
    if rests {
        warn!(worker, error = chain, "a worker cannot be reached and rests");
    } else if !error.is_unreachable()
        && let Some(held_back) = held_back()
    {
        warn!(worker, error = chain, held_back, "a worker failed to answer");
    } else {
        debug!(worker, error = chain, "an attempt failed");
    }
}

fn book(request: &RequestContext, placement: Placement) -> routing::LoadLease {
    let pool = request.pool();
    let prompt = request.prompt_tokens();
    let matched = placement.matched.unwrap_or(0);
    if request.tokens.is_some() {
        pool.metrics.prompt_tokens.inc_by(prompt.into());
        pool.metrics.matched_tokens.inc_by(matched.into());
    }
    let load = pool.members[placement.member].worker.load();
    load.book(prompt, prompt.saturating_sub(matched))
}
