//! Why worker X: the policy is asked, its answer is checked, and where it has none the fallback decides. A
//! client never sees a policy's bug.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use routing::{
    Decision, DecisionInput, DecisionQueries, FaultKind, Hold, Phase, Policy, Rejection, RequestFacts,
    Verdict, WorkerId, check,
};
use tracing::warn;

use crate::candidates::{Candidates, NoCandidate};
use crate::context::RequestContext;
use crate::label::VerdictKind;
use crate::proxy::Proxy;
use crate::queries::CallQueries;

thread_local! {
    /// Taken for the time of a decision and put back.
    static CANDIDATES: Cell<Candidates> = Cell::default();
}

/// What to do with a request now.
#[derive(Debug)]
pub(crate) enum Step {
    Send(Placement),
    Hold(Hold),
    Reject(Rejection),
}

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    /// Index into the pool's members.
    pub(crate) member: usize,
    /// Tokens of the prompt the worker holds on any tier, where the index was asked.
    pub(crate) matched: Option<u32>,
}

/// Decides once. `attempt` counts the decisions before; `tried` are the workers that are out of the question.
pub(crate) fn decide(
    proxy: &Proxy,
    request: &Arc<RequestContext>,
    attempt: u32,
    tried: &[WorkerId],
) -> Result<Step, NoCandidate> {
    let mut candidates = CANDIDATES.take();
    let step = decide_among(&mut candidates, proxy, request, attempt, tried);
    CANDIDATES.set(candidates);
    step
}

fn decide_among(
    candidates: &mut Candidates,
    proxy: &Proxy,
    request: &Arc<RequestContext>,
    attempt: u32,
    tried: &[WorkerId],
) -> Result<Step, NoCandidate> {
    candidates.find(request.pool(), &request.model, tried)?;
    let facts = RequestFacts {
        seq: request.seq,
        session: request.session,
        phase: Phase::Mixed,
        attempt,
        now_us: proxy.now_us(),
    };
    let plan = request.route().policy.plan();
    if plan.needs_prefix() {
        candidates.ask_index(request, &proxy.index);
    }
    let known = plan.needs_prefix().then_some(&*candidates.matches);
    let queries = CallQueries::new(
        Arc::clone(request),
        Arc::clone(&proxy.index),
        &candidates.ids,
        known,
    );
    let queries: Arc<dyn DecisionQueries> = Arc::new(queries);
    let row = match ask_policy(candidates, proxy, request, &facts, &queries) {
        Decision::Route(route) => route.row(),
        Decision::Queue(hold) => return Ok(Step::Hold(hold)),
        Decision::Reject(rejection) => return Ok(Step::Reject(rejection)),
        Decision::Pass => ask_fallback(candidates, proxy, request, &facts, &queries),
    };
    Ok(Step::Send(Placement {
        member: candidates.members[row],
        matched: candidates.matches.get(row).map(|found| found.any_tokens),
    }))
}

/// The policy's checked answer; one that makes no sense, or none at all, is as good as a pass.
fn ask_policy(
    candidates: &mut Candidates,
    proxy: &Proxy,
    request: &RequestContext,
    facts: &RequestFacts,
    queries: &Arc<dyn DecisionQueries>,
) -> Decision {
    let route = request.route();
    let (policy, metrics) = (&route.policy, &route.metrics);
    candidates.lay_out(policy.plan(), request, &proxy.index, &proxy.live);
    let input = input(candidates, facts, queries);
    let asked = Instant::now();
    let verdict = policy.decide(&input);
    metrics.decision_time.observe(asked.elapsed().as_secs_f64());
    let failed = |kind: FaultKind, error: &(dyn std::error::Error + 'static)| {
        metrics.failed(kind);
        if let Some(held_back) = proxy.fault_log.pass() {
            warn!(
                policy = policy.name(),
                fault = kind.as_str(),
                error,
                seq = facts.seq,
                held_back,
                "the policy failed to decide; the fallback does"
            );
        }
        Decision::Pass
    };
    match verdict {
        Ok(verdict) => {
            metrics.answered(kind(&verdict));
            check(verdict, candidates.ids.len())
                .unwrap_or_else(|invalid| failed(FaultKind::InvalidVerdict, &invalid))
        }
        Err(fault) => failed(fault.kind, &fault),
    }
}

fn ask_fallback(
    candidates: &mut Candidates,
    proxy: &Proxy,
    request: &RequestContext,
    facts: &RequestFacts,
    queries: &Arc<dyn DecisionQueries>,
) -> usize {
    request.route().metrics.fallbacks.inc();
    candidates.lay_out(proxy.fallback.plan(), request, &proxy.index, &proxy.live);
    let verdict = proxy.fallback.decide(&input(candidates, facts, queries));
    match verdict.map(|verdict| check(verdict, candidates.ids.len())) {
        Ok(Ok(Decision::Route(route))) => route.row(),
        // The fallback routes to a row it was shown; were it ever to fail, the first is as good as any.
        _ => 0,
    }
}

fn input<'a>(
    candidates: &'a Candidates,
    request: &'a RequestFacts,
    queries: &'a Arc<dyn DecisionQueries>,
) -> DecisionInput<'a> {
    DecisionInput {
        request,
        ids: &candidates.ids,
        numbers: &candidates.numbers,
        queries,
    }
}

fn kind(verdict: &Verdict) -> VerdictKind {
    match verdict {
        Verdict::Route(_) => VerdictKind::Route,
        Verdict::Queue(_) => VerdictKind::Queue,
        Verdict::Reject(_) => VerdictKind::Reject,
        Verdict::Pass => VerdictKind::Pass,
    }
}
