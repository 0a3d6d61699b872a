//! Decisions of shadows about captured placements.

use std::sync::Arc;
use std::time::{Duration, Instant};

use placement::{
    CallAnswer, CallFault, CalledPolicy, Candidates, DecisionContext, EligibleSet, PlacementObserver,
    PlacementOutcome, PlacementPart, PolicyCall, WorkerChoice,
};
use routing::{Chosen, CircuitChange, Decision};
use tracing::{debug, warn};

use super::Shadow;
use super::captured::CapturedPlacement;
use super::log::{self, LoggedAnswer};
use super::record::{Pick, ShadowVerdict};
use super::view::{ShadowView, Unanswered};
use crate::dispatch::sources::DecisionSources;
use crate::observe::spans::ShadowDecision;

/// Calls every shadow of the request's route.
pub(super) fn all(sources: &DecisionSources, captured: &CapturedPlacement) {
    let shadows = captured.request.policies.at_arrival().shadows.iter();
    for (number, shadow) in shadows.flat_map(|shadows| &shadows.each).enumerate() {
        let view = ShadowView::new(sources, captured, &shadow.policy);
        let mut observer = ShadowObserver {
            shadow,
            version: None,
            called: None,
            took: Duration::ZERO,
            unanswered: ShadowVerdict::CircuitOpen,
        };
        let answer = answer(&view, &mut observer, captured);
        let ShadowObserver { version, took, .. } = observer;
        let result = shadow.record.add(captured, &answer, took);
        let logged = LoggedAnswer {
            answer,
            result,
            version,
            took,
        };
        log::write(captured, shadow, &logged);
        trace(captured, shadow, &logged, number);
    }
}

/// Adds the decision to the traces, if the request is sampled.
fn trace(captured: &CapturedPlacement, shadow: &Shadow, logged: &LoggedAnswer, number: usize) {
    let Some(spans) = captured.request.head.watch.spans.shadows() else {
        return;
    };
    let worker = match logged.answer {
        ShadowVerdict::Placed { answers, .. } => {
            let member = &captured.pool.workers.members[captured.rows.members[answers]];
            Some(Arc::clone(member.worker.shared_spec()))
        }
        _ => None,
    };
    spans.add(&ShadowDecision {
        number,
        policy: &shadow.record.label.policy,
        version: logged.version.as_ref(),
        took: logged.took,
        result: logged.result.as_str(),
        worker,
    });
}

fn answer(
    view: &ShadowView<'_>,
    observer: &mut ShadowObserver<'_>,
    captured: &CapturedPlacement,
) -> ShadowVerdict {
    let part = PlacementPart::Request;
    let Ok(eligible) = EligibleSet::find(view, part, &[]) else {
        // The health of the workers changed while they were captured.
        return ShadowVerdict::Passed;
    };
    let mut context = DecisionContext {
        view,
        observer,
        state: captured.state,
        eligible,
        candidates: &mut Candidates::default(),
    };
    match context.decide(part) {
        Ok(PlacementOutcome::Dispatch(placement)) => ShadowVerdict::Placed {
            answers: placement.answers.member,
            prefills: placement.prefills.map(|choice| choice.member),
        },
        Ok(PlacementOutcome::Hold(_)) => ShadowVerdict::Held,
        Ok(PlacementOutcome::Reject(_)) => ShadowVerdict::Rejected,
        Err(Unanswered) => observer.unanswered,
    }
}

/// The observer of one decision of a shadow.
struct ShadowObserver<'a> {
    shadow: &'a Shadow,
    /// Version that was called first.
    version: Option<Arc<str>>,
    /// Start of the call.
    called: Option<Instant>,
    /// Time of all calls.
    took: Duration,
    /// Reason why the shadow has no answer, if it has none.
    unanswered: ShadowVerdict,
}

impl<'v> PlacementObserver<ShadowView<'v>> for ShadowObserver<'_> {
    fn call_started(&mut self) {}

    fn policy_called(&mut self, _: &PolicyCall<'_, ShadowView<'v>>, policy: CalledPolicy<'_>) -> bool {
        if let CalledPolicy::Version(chosen) = policy {
            self.version
                .get_or_insert_with(|| Arc::clone(&chosen.version().id));
        }
        self.called = Some(Instant::now());
        false
    }

    fn policy_answered(&mut self, _: &PolicyCall<'_, ShadowView<'v>>, _: &Candidates, _: CallAnswer<'_>) {
        self.took += self
            .called
            .take()
            .map(|called| called.elapsed())
            .unwrap_or_default();
    }

    fn call_succeeded(
        &mut self,
        _: &PolicyCall<'_, ShadowView<'v>>,
        _: Chosen<'_>,
        decision: &Decision,
        _: CircuitChange,
    ) {
        self.unanswered = match decision {
            Decision::Pass => ShadowVerdict::Passed,
            // The circuit may be open when the other phase is decided.
            _ => ShadowVerdict::CircuitOpen,
        };
    }

    fn call_failed(
        &mut self,
        _: &PolicyCall<'_, ShadowView<'v>>,
        chosen: Chosen<'_>,
        fault: &CallFault,
        change: CircuitChange,
    ) {
        let (policy, version) = (self.shadow.policy.name(), &*chosen.version().id);
        let (kind, error) = (fault.kind(), fault.error());
        debug!(
            policy,
            version,
            fault = kind.as_str(),
            error,
            "a shadow failed to decide"
        );
        if let CircuitChange::Opened(rest) = change {
            warn!(
                policy,
                version,
                fault = kind.as_str(),
                error,
                ?rest,
                "the circuit of the shadow opened after repeated faults: it is not called"
            );
        }
        self.unanswered = ShadowVerdict::Fault(kind);
    }
}

impl CapturedPlacement {
    /// Returns a captured row for the report.
    pub(super) fn pick(&self, row: usize) -> Pick {
        let member = &self.pool.workers.members[self.rows.members[row]];
        let matched = self.rows.matches.get(row).map(|found| found.any_tokens);
        let prompt = self.request.prompt_tokens();
        let cached = matched.unwrap_or(0).min(prompt);
        let load = self.rows.loads[row];
        let ahead = load.prefill_tokens + u64::from(prompt - cached);
        let costs = member.worker.load().cost().read();
        let predicted = costs.prefill_ms(u32::try_from(ahead).unwrap_or(u32::MAX), cached);
        Pick {
            worker: member.worker.spec().name.clone(),
            matched,
            ahead,
            ttft_ms: (!predicted.is_nan()).then_some(predicted),
            requests: load.requests,
        }
    }

    /// Returns the rows of the placement that was made, the prefill worker's second.
    pub(super) fn placed(&self) -> Option<(usize, Option<usize>)> {
        let row = |choice: WorkerChoice| self.rows.row(choice.member);
        let prefills = match self.placement.prefills {
            Some(choice) => Some(row(choice)?),
            None => None,
        };
        Some((row(self.placement.answers)?, prefills))
    }
}
