//! Observer of the server's decisions: metrics of the calls, the record of a request, and the log of faults and
//! circuits.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use placement::{
    CallAnswer, CallFault, CalledPolicy, Candidates, FallbackCause, PlacementObserver, PolicyCall,
};
use request_traces::{CalledPolicyNote, DecisionNote, GivenAnswer};
use routing::{Chosen, CircuitChange, Decision, Phase, Policy, Verdict};
use tracing::{info, warn};

use crate::base::label::{VERDICTS, VerdictKind};
use crate::base::request_id::RequestId;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::router_view::RouterView;
use crate::dispatch::sources::DecisionSources;
use crate::record::{AccessPolicy, CallNote, Checked, LoggedWorker, Subject};

/// The observer of one decision.
#[derive(Debug)]
pub(crate) struct CallObserver<'a> {
    sources: &'a DecisionSources,
    request: &'a InferenceRequest,
    /// Start of the call, and of the policy's part of it.
    started: Option<Instant>,
    called: Option<Instant>,
}

impl<'a> CallObserver<'a> {
    pub(crate) fn new(sources: &'a DecisionSources, request: &'a InferenceRequest) -> Self {
        Self {
            sources,
            request,
            started: None,
            called: None,
        }
    }
}

impl<'v> PlacementObserver<RouterView<'v>> for CallObserver<'_> {
    fn call_started(&mut self) {
        self.started = Some(Instant::now());
    }

    fn policy_called(&mut self, call: &PolicyCall<'_, RouterView<'v>>, policy: CalledPolicy<'_>) -> bool {
        let now = Instant::now();
        self.called = Some(now);
        match policy {
            CalledPolicy::Version(_) => {
                let metrics = &self.request.policy(call.facts().phase).metrics;
                let candidates = call.candidates() as f64;
                self.request.pool().metrics.candidates.observe(candidates);
                let gathering = self.started.map(|started| now.duration_since(started));
                metrics
                    .gather_time
                    .observe(gathering.unwrap_or_default().as_secs_f64());
            }
            CalledPolicy::Fallback => {
                if self.request.reports_policy() {
                    self.request.progress.decided_by.fallback();
                }
                self.log_policy(call.facts().phase, None);
            }
        }
        self.request.progress.trace.is_some()
    }

    fn policy_answered(
        &mut self,
        call: &PolicyCall<'_, RouterView<'v>>,
        candidates: &Candidates,
        answer: CallAnswer<'_>,
    ) {
        self.note_call(call, &answer);
        let is_fallback = matches!(answer.policy, CalledPolicy::Fallback);
        if is_fallback && self.request.progress.trace.is_none() {
            return;
        }
        let took = self.called.map(|called| called.elapsed()).unwrap_or_default();
        if !is_fallback {
            let metrics = &self.request.policy(call.facts().phase).metrics;
            metrics.decision_time.observe(took.as_secs_f64());
        }
        if self.request.progress.trace.is_some() {
            self.record(took, call, candidates, answer);
        }
    }

    fn call_succeeded(
        &mut self,
        call: &PolicyCall<'_, RouterView<'v>>,
        chosen: Chosen<'_>,
        decision: &Decision,
        change: CircuitChange,
    ) {
        let deciding = self.request.policy(call.facts().phase);
        deciding.metrics.decided(VerdictKind::of_decision(decision));
        if change == CircuitChange::Closed {
            let version = &*chosen.version().id;
            info!(
                policy = deciding.versions.name(),
                version, "a version of the policy decides again"
            );
        }
        if self.request.reports_policy() && matches!(decision, Decision::Route(_) | Decision::Reject(_)) {
            self.request
                .progress
                .decided_by
                .policy(&deciding.names, chosen.version());
        }
        if matches!(decision, Decision::Route(_) | Decision::Reject(_)) {
            self.log_policy(call.facts().phase, Some(&chosen.version().id));
        }
    }

    fn call_failed(
        &mut self,
        call: &PolicyCall<'_, RouterView<'v>>,
        chosen: Chosen<'_>,
        fault: &CallFault,
        change: CircuitChange,
    ) {
        let deciding = self.request.policy(call.facts().phase);
        let (kind, error) = (fault.kind(), fault.error());
        self.note_fault(call, chosen, kind.as_str());
        deciding.metrics.failed(kind);
        let version = &*chosen.version().id;
        if let CircuitChange::Opened(rest) = change {
            let policy = deciding.versions.name();
            warn!(
                policy,
                version,
                fault = kind.as_str(),
                error,
                ?rest,
                "the circuit of the policy's version opened after repeated faults: it is not called"
            );
        }
        if let Some(held_back) = self.sources.fault_log.pass() {
            warn!(
                policy = deciding.versions.name(),
                version,
                fault = kind.as_str(),
                error,
                seq = call.facts().seq,
                request = %RequestId(&self.request.head.id),
                held_back,
                "the policy failed to decide; the fallback does"
            );
        }
    }

    fn fallback_used(&mut self, phase: Phase, cause: FallbackCause) {
        self.request.policy(phase).metrics.fell_back(cause);
    }
}

impl CallObserver<'_> {
    /// Records the deciding policy in the access log. `version`: `None` if the fallback decides.
    fn log_policy(&self, phase: Phase, version: Option<&str>) {
        self.request.head.watch.access.update(|line| {
            let name = self.request.policy(phase).versions.name();
            line.policy = AccessPolicy {
                policy: Some(name.into()),
                policy_version: version.map(Into::into),
                fallback: Some(version.is_none()),
            };
        });
    }

    /// Notes a call for the request's trace. The chosen workers are added once the decision is made.
    fn note_call(&mut self, call: &PolicyCall<'_, RouterView<'_>>, answer: &CallAnswer<'_>) {
        let spans = &self.request.head.watch.spans;
        let (version, is_fallback) = match answer.policy {
            CalledPolicy::Version(chosen) => (Some(&chosen.version().id), false),
            CalledPolicy::Fallback => (None, true),
        };
        if !spans.takes_notes() && !is_fallback {
            return;
        }
        let given = answer.answer.as_ref().ok();
        let answer = GivenAnswer {
            verdict: given.map(|verdict| VERDICTS[VerdictKind::of(verdict) as usize].1),
            score: given.and_then(score),
            ..GivenAnswer::default()
        };
        let note = self.decision_note(call, version, answer);
        // A request that the fallback places is exported.
        spans.remark(|trace| trace.decisions.push(note));
    }

    /// Notes that a call failed. The request is exported.
    fn note_fault(&mut self, call: &PolicyCall<'_, RouterView<'_>>, chosen: Chosen<'_>, kind: &'static str) {
        let spans = &self.request.head.watch.spans;
        if spans.takes_notes() {
            return spans.note(|trace| {
                if let Some(note) = trace.decisions.last_mut() {
                    note.answer.verdict = None;
                    note.answer.fault = Some(kind);
                }
            });
        }
        let answer = GivenAnswer {
            fault: Some(kind),
            ..GivenAnswer::default()
        };
        let note = self.decision_note(call, Some(&chosen.version().id), answer);
        spans.remark(|trace| trace.decisions.push(note));
    }

    /// Returns the note of a call that has just ended.
    fn decision_note(
        &mut self,
        call: &PolicyCall<'_, RouterView<'_>>,
        version: Option<&Arc<str>>,
        answer: GivenAnswer,
    ) -> DecisionNote {
        let (request, facts) = (self.request, call.facts());
        let ended = Instant::now();
        let called = self.called.unwrap_or(ended);
        DecisionNote {
            // The fallback is called about the candidates of the failed call.
            began: self.started.take().unwrap_or(called),
            called,
            ended,
            policy: CalledPolicyNote {
                name: request.policy(facts.phase).versions.name().into(),
                version: version.map(Arc::clone),
                arm: request.policies.arm(),
            },
            phase: facts.phase.as_str(),
            attempt: facts.attempt,
            candidates: call.candidates(),
            best_tokens: None,
            answer,
        }
    }

    /// Records the columns, the queries and the answer of a call.
    #[cold]
    fn record(
        &self,
        took: Duration,
        call: &PolicyCall<'_, RouterView<'_>>,
        candidates: &Candidates,
        answer: CallAnswer<'_>,
    ) {
        let Some(trace) = &self.request.progress.trace else {
            return;
        };
        let (policy, version): (&dyn Policy, _) = match answer.policy {
            CalledPolicy::Version(chosen) => (&*chosen.version().policy, Some(&chosen.version().id)),
            CalledPolicy::Fallback => (&self.sources.fallback, None),
        };
        let subject = Subject::of(policy, version, trace.all_columns());
        let more_numbers = if trace.all_columns() {
            call.recorded_columns(&subject.more, candidates)
        } else {
            Vec::new()
        };
        let members = &self.request.pool().workers.members;
        let rows = candidates.members.iter();
        trace.called(CallNote {
            facts: *call.facts(),
            subject,
            is_fallback: matches!(answer.policy, CalledPolicy::Fallback),
            workers: rows.map(|at| LoggedWorker::of(&members[*at].worker)).collect(),
            numbers: candidates.numbers().to_vec(),
            more_numbers,
            transcript: answer.transcript,
            checked: Checked::of(answer.answer, answer.offer),
            answer: answer.answer.clone(),
            took,
            at: SystemTime::now(),
        });
    }
}

/// Returns the policy's figure of merit, where it has one.
fn score(verdict: &Verdict) -> Option<f64> {
    match verdict {
        Verdict::Route(choice) => Some(choice.score).filter(|score| score.is_finite()),
        _ => None,
    }
}
