//! One call of a policy: the numbers it asked for are laid out, its answer is checked, and where it has none the fallback
//! decides. A client never sees a policy's bug.

use std::sync::Arc;
use std::time::Instant;

use routing::{
    Chosen, CircuitChange, Decision, DecisionInput, DecisionQueries, FaultKind, FeaturePlan, Offer,
    Policy as _, RequestFacts, Verdict, check,
};
use tracing::{info, warn};

use crate::candidates::Candidates;
use crate::context::RequestContext;
use crate::decide::Seat;
use crate::label::VerdictKind;
use crate::proxy::Proxy;
use crate::queries::CallQueries;
use crate::request_id::RequestId;
use crate::route::Decider;

/// One call under way.
pub(crate) struct Call<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) request: &'a RequestContext,
    pub(crate) facts: &'a RequestFacts,
    pub(crate) started: Instant,
    pub(crate) queries: &'a CallQueries,
    /// The same, for a policy.
    pub(crate) shared: Arc<dyn DecisionQueries>,
}

impl Call<'_> {
    /// The policy's checked answer; one that makes no sense, or none at all, is as good as a pass.
    pub(crate) fn ask_policy(
        &self,
        decider: &Decider,
        chosen: Chosen<'_>,
        candidates: &mut Candidates,
        offer: Offer<'_>,
    ) -> Decision {
        let (policy, metrics) = (&chosen.version().policy, &decider.metrics);
        self.lay_out(candidates, policy.plan());
        let input = self.input(candidates);
        let asked = Instant::now();
        let gathering = asked.duration_since(self.started);
        metrics.gather_time.observe(gathering.as_secs_f64());
        let verdict = policy.decide(&input);
        metrics.decision_time.observe(asked.elapsed().as_secs_f64());
        match verdict {
            Ok(verdict) => {
                metrics.answered(kind(&verdict));
                match check(verdict, offer) {
                    Ok(decision) => self.succeeded(decider, chosen, decision),
                    Err(invalid) => self.failed(decider, chosen, FaultKind::InvalidVerdict, &invalid),
                }
            }
            Err(fault) => self.failed(decider, chosen, fault.kind, &fault),
        }
    }

    fn succeeded(&self, decider: &Decider, chosen: Chosen<'_>, decision: Decision) -> Decision {
        if chosen.succeeded(self.facts.now_us) == CircuitChange::Closed {
            let version = &*chosen.version().id;
            info!(
                policy = decider.policy.name(),
                version, "a version of the policy decides again"
            );
        }
        decision
    }

    fn failed(
        &self,
        decider: &Decider,
        chosen: Chosen<'_>,
        kind: FaultKind,
        error: &(dyn std::error::Error + 'static),
    ) -> Decision {
        decider.metrics.failed(kind);
        let version = &*chosen.version().id;
        if let CircuitChange::Opened(rest) = chosen.failed(self.facts.now_us) {
            let policy = decider.policy.name();
            warn!(
                policy,
                version,
                fault = kind.as_str(),
                error,
                ?rest,
                "too many faults: this version of the policy rests"
            );
        }
        if let Some(held_back) = self.proxy.fault_log.pass() {
            warn!(
                policy = decider.policy.name(),
                version,
                fault = kind.as_str(),
                error,
                seq = self.facts.seq,
                request = %RequestId(&self.request.id),
                held_back,
                "the policy failed to decide; the fallback does"
            );
        }
        Decision::Pass
    }

    pub(crate) fn ask_fallback(&self, candidates: &mut Candidates) -> usize {
        let fallback = &self.proxy.fallback;
        self.lay_out(candidates, fallback.plan());
        let input = self.input(candidates);
        let offer = Offer::One {
            candidates: input.ids.len(),
        };
        match fallback.decide(&input).map(|verdict| check(verdict, offer)) {
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

    pub(crate) fn seat(&self, candidates: &Candidates, row: usize) -> Seat {
        let matched = self.queries.asked().and_then(|matches| matches.get(row));
        Seat {
            member: candidates.members[row],
            matched: matched.map(|found| found.any_tokens),
        }
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
