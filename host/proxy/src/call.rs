//! One call of a policy: the numbers it asked for are laid out, its answer is checked, and where it has none the fallback
//! decides. A client never sees a policy's bug.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use routing::{
    Chosen, CircuitChange, Decision, DecisionInput, DecisionQueries, FaultKind, FeaturePlan, Hold, Offer,
    Policy, PolicyFault, RequestFacts, Transcript, Verdict, check,
};
use tracing::{info, warn};

use crate::candidates::{Candidates, Standing};
use crate::context::RequestContext;
use crate::decide::{Pause, Seat};
use crate::label::VerdictKind;
use crate::matches::Matches;
use crate::proxy::Proxy;
use crate::queries::CallQueries;
use crate::record::{CallNote, Checked, NotedWorker, Subject, Trace};
use crate::request_id::RequestId;
use crate::route::Decider;

/// One call under way.
pub(crate) struct Call<'a> {
    pub(crate) proxy: &'a Proxy,
    pub(crate) request: &'a RequestContext,
    pub(crate) facts: &'a RequestFacts,
    pub(crate) standing: Standing<'a>,
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
        let (verdict, transcript) = self.decide(&**policy, &input);
        let took = asked.elapsed();
        metrics.decision_time.observe(took.as_secs_f64());
        if let Some(trace) = &self.request.trace {
            let noted = Noted {
                policy: &**policy,
                is_fallback: false,
                offer,
                answer: verdict.clone(),
                transcript,
                took,
            };
            self.note(trace, candidates, noted);
        }
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

    /// The policy's answer; where the request is recorded, with what it asked on the way.
    fn decide(
        &self,
        policy: &dyn Policy,
        input: &DecisionInput<'_>,
    ) -> (Result<Verdict, PolicyFault>, Transcript) {
        if self.request.trace.is_some() {
            policy.decide_noting(input)
        } else {
            (policy.decide(input), Transcript::default())
        }
    }

    /// Records what was laid out, asked and answered.
    #[cold]
    fn note(&self, trace: &Arc<Trace>, candidates: &mut Candidates, noted: Noted<'_>) {
        let subject = Subject::of(noted.policy, trace.all_columns());
        let numbers = candidates.numbers.clone();
        let mut more_numbers = Vec::new();
        if trace.all_columns() {
            // For the record alone: what the request is booked by stays as if nobody had looked.
            let looked_up = match self.queries.asked() {
                Some(_) => None,
                None => Some(self.queries.ask(Matches::default())),
            };
            let matches = looked_up.as_ref().or(self.queries.asked());
            candidates.lay_out(self.proxy, &subject.more, (self.request, self.standing), matches);
            more_numbers.clone_from(&candidates.numbers);
        }
        let members = &self.request.pool().members;
        let rows = candidates.members.iter();
        trace.called(CallNote {
            facts: *self.facts,
            subject,
            is_fallback: noted.is_fallback,
            workers: rows.map(|at| NotedWorker::of(&members[*at].worker)).collect(),
            numbers,
            more_numbers,
            transcript: noted.transcript,
            checked: Checked::of(&noted.answer, noted.offer),
            answer: noted.answer,
            took: noted.took,
            at: SystemTime::now(),
        });
    }

    fn succeeded(&self, decider: &Decider, chosen: Chosen<'_>, decision: Decision) -> Decision {
        if chosen.succeeded(self.facts.now_us) == CircuitChange::Closed {
            let version = &*chosen.version().id;
            info!(
                policy = decider.policy.name(),
                version, "a version of the policy decides again"
            );
        }
        if self.request.tells_who_decided() && matches!(decision, Decision::Route(_) | Decision::Reject(_)) {
            self.request.decided_by.policy(&decider.names, chosen.version());
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
        if self.request.tells_who_decided() {
            self.request.decided_by.fallback();
        }
        self.lay_out(candidates, fallback.plan());
        let input = self.input(candidates);
        let offer = Offer::One {
            candidates: input.ids.len(),
        };
        let asked = Instant::now();
        let answer = fallback.decide(&input);
        if let Some(trace) = &self.request.trace {
            let noted = Noted {
                policy: fallback,
                is_fallback: true,
                offer,
                answer: answer.clone(),
                transcript: Transcript::default(),
                took: asked.elapsed(),
            };
            self.note(trace, candidates, noted);
        }
        match answer.map(|verdict| check(verdict, offer)) {
            Ok(Ok(Decision::Route(route))) => route.row(),
            // The fallback routes to a row it was shown; were it ever to fail, the first is as good as any.
            _ => 0,
        }
    }

    fn lay_out(&self, candidates: &mut Candidates, plan: &FeaturePlan) {
        let asked = (self.request, self.standing);
        candidates.lay_out(self.proxy, plan, asked, self.queries.asked());
    }

    fn input<'a>(&'a self, candidates: &'a Candidates) -> DecisionInput<'a> {
        DecisionInput {
            request: self.facts,
            ids: &self.queries.ids,
            numbers: &candidates.numbers,
            queries: &self.shared,
        }
    }

    /// How a request is held; the row that it waits for was checked.
    pub(crate) fn pause(&self, hold: Hold) -> Pause {
        Pause {
            order: hold.order,
            ask_again: Duration::from_millis(hold.ask_again_ms.into()),
            waits_for: hold.awaited(&self.queries.ids),
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

/// A call that is to be recorded.
struct Noted<'a> {
    policy: &'a dyn Policy,
    is_fallback: bool,
    offer: Offer<'a>,
    answer: Result<Verdict, PolicyFault>,
    transcript: Transcript,
    took: Duration,
}

fn kind(verdict: &Verdict) -> VerdictKind {
    match verdict {
        Verdict::Route(_) => VerdictKind::Route,
        Verdict::Queue(_) => VerdictKind::Queue,
        Verdict::Reject(_) => VerdictKind::Reject,
        Verdict::Pass => VerdictKind::Pass,
    }
}
