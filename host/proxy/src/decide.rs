//! Why worker X: the policy is asked, its answer is checked, and where it has none the fallback decides. A
//! client never sees a policy's bug.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use routing::{
    Decision, DecisionInput, DecisionQueries, FaultKind, FeaturePlan, Hold, Offer, Phase, Policy, Rejection,
    RequestFacts, Verdict, WorkerId, check,
};
use tracing::warn;

use crate::candidates::{Candidates, NoCandidate};
use crate::context::RequestContext;
use crate::label::VerdictKind;
use crate::proxy::Proxy;
use crate::queries::CallQueries;
use crate::request_id::RequestId;

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
    /// Tokens of the prompt the worker holds on any tier, where the index was asked and knows.
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
    let started = Instant::now();
    candidates.find(request.pool(), &request.model, tried)?;
    let facts = RequestFacts {
        seq: request.seq,
        session: request.session,
        phase: Phase::Mixed,
        attempt,
        now_us: proxy.now_us(),
    };
    let queries = Arc::new(CallQueries::begin(proxy, request, candidates));
    let call = Call {
        proxy,
        request,
        facts: &facts,
        started,
        shared: Arc::clone(&queries) as Arc<dyn DecisionQueries>,
        queries: &queries,
    };
    let step = match call.ask_policy(candidates) {
        Decision::Route(route) => Step::Send(call.placement(candidates, route.row())),
        Decision::Queue(hold) => Step::Hold(hold),
        Decision::Reject(rejection) => Step::Reject(rejection),
        Decision::Pass => {
            let row = call.ask_fallback(candidates);
            Step::Send(call.placement(candidates, row))
        }
    };
    drop(call);
    if let Some(queries) = Arc::into_inner(queries) {
        queries.end(candidates);
    }
    Ok(step)
}

/// One decision under way.
struct Call<'a> {
    proxy: &'a Proxy,
    request: &'a RequestContext,
    facts: &'a RequestFacts,
    started: Instant,
    queries: &'a CallQueries,
    /// The same, for a policy.
    shared: Arc<dyn DecisionQueries>,
}

impl Call<'_> {
    /// The policy's checked answer; one that makes no sense, or none at all, is as good as a pass.
    fn ask_policy(&self, candidates: &mut Candidates) -> Decision {
        let route = self.request.route();
        let (policy, metrics) = (&route.policy, &route.metrics);
        self.lay_out(candidates, policy.plan());
        let input = self.input(candidates);
        let asked = Instant::now();
        let gathering = asked.duration_since(self.started);
        metrics.gather_time.observe(gathering.as_secs_f64());
        let verdict = policy.decide(&input);
        metrics.decision_time.observe(asked.elapsed().as_secs_f64());
        let failed = |kind: FaultKind, error: &(dyn std::error::Error + 'static)| {
            metrics.failed(kind);
            if let Some(held_back) = self.proxy.fault_log.pass() {
                warn!(
                    policy = policy.name(),
                    fault = kind.as_str(),
                    error,
                    seq = self.facts.seq,
                    request = %RequestId(&self.request.id),
                    held_back,
                    "the policy failed to decide; the fallback does"
                );
            }
            Decision::Pass
        };
        match verdict {
            Ok(verdict) => {
                metrics.answered(kind(&verdict));
                check(verdict, one(&input))
                    .unwrap_or_else(|invalid| failed(FaultKind::InvalidVerdict, &invalid))
            }
            Err(fault) => failed(fault.kind, &fault),
        }
    }

    fn ask_fallback(&self, candidates: &mut Candidates) -> usize {
        self.request.route().metrics.fallbacks.inc();
        let fallback = &self.proxy.fallback;
        self.lay_out(candidates, fallback.plan());
        let input = self.input(candidates);
        let verdict = fallback.decide(&input);
        match verdict.map(|verdict| check(verdict, one(&input))) {
            Ok(Ok(Decision::Route(route))) => route.row(),
            // The fallback routes to a row it was shown; were it ever to fail, the first is as good as any.
            _ => 0,
        }
    }

    fn lay_out(&self, candidates: &mut Candidates, plan: &FeaturePlan) {
        candidates.lay_out(self.proxy, plan, self.request, self.queries.asked());
    }

    fn input<'a>(&'a self, candidates: &'a Candidates) -> DecisionInput<'a> {
        DecisionInput {
            request: self.facts,
            ids: &self.queries.ids,
            numbers: &candidates.numbers,
            queries: &self.shared,
        }
    }

    fn placement(&self, candidates: &Candidates, row: usize) -> Placement {
        let matched = self.queries.asked().and_then(|matches| matches.get(row));
        Placement {
            member: candidates.members[row],
            matched: matched.map(|found| found.any_tokens),
        }
    }
}

fn one<'a>(input: &DecisionInput<'_>) -> Offer<'a> {
    Offer::One {
        candidates: input.ids.len(),
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
