//! Decisions of the server: a request, or the decode leg of one, is placed on workers of its pool.

use std::cell::Cell;
use std::sync::Arc;

use placement::{
    AttemptState, Candidates, DecisionContext, EligibleSet, NoCandidate, PlacementOutcome, PlacementPart,
    WorkerChoice, WorkerPlacement,
};
use routing::Phase;

use crate::dispatch::call_observer::CallObserver;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::router_view::{HoldWindow, RouterView};
use crate::dispatch::shadow::DecidedPlacement;

thread_local! {
    /// Buffers of the thread, taken for the time of a decision.
    static CANDIDATES: Cell<Candidates> = Cell::default();
}

/// Notes the chosen workers in the calls of a decision, for the request's trace.
fn note_workers(request: &InferenceRequest, placement: &WorkerPlacement, attempt: u32) {
    request.head.watch.spans.note(|trace| {
        let spec = |choice: WorkerChoice| {
            let member = &request.pool().workers.members[choice.member];
            Arc::clone(member.worker.shared_spec())
        };
        let calls = trace.decisions.iter_mut().rev();
        for call in calls.take_while(|call| call.attempt == attempt) {
            if call.answer.verdict != Some("route") {
                continue;
            }
            let is_prefill = call.phase == Phase::Prefill.as_str();
            let choice = placement
                .prefills
                .filter(|_| is_prefill)
                .unwrap_or(placement.answers);
            call.best_tokens = choice.best;
            call.answer.matched_tokens = choice.matched;
            call.answer.worker = Some(spec(choice));
            call.answer.prefill = placement
                .prefills
                .filter(|_| call.phase == Phase::Mixed.as_str())
                .map(spec);
        }
    });
}

/// Decides once. Nothing is allocated but the one shared value that a policy queries. `failures` counts the attempts
/// that failed.
pub(crate) fn decide(
    dispatcher: &Dispatcher,
    request: &Arc<InferenceRequest>,
    part: PlacementPart,
    state: AttemptState<'_>,
    window: HoldWindow,
    failures: u32,
) -> Result<PlacementOutcome, NoCandidate> {
    let view = RouterView::new(&dispatcher.sources, request, window);
    let eligible = EligibleSet::find(&view, part, state.tried)?;
    let mut candidates = CANDIDATES.take();
    let mut observer = CallObserver::new(&dispatcher.sources, request);
    let mut context = DecisionContext {
        view: &view,
        observer: &mut observer,
        state,
        eligible,
        candidates: &mut candidates,
    };
    let Ok(outcome) = context.decide(part);
    if let PlacementOutcome::Dispatch(placement) = &outcome {
        note_workers(request, placement, state.attempt);
    }
    // A request is offered to its shadows once. A failure that no worker is blamed for leaves the list of tried ones
    // empty, so the list does not show a retry.
    if let PlacementOutcome::Dispatch(placement) = &outcome
        && part == PlacementPart::Request
        && failures == 0
    {
        let decided = DecidedPlacement {
            eligible,
            candidates: &candidates,
            placement: *placement,
            state,
        };
        dispatcher.shadows.offer(&view, &decided);
    }
    CANDIDATES.set(candidates);
    Ok(outcome)
}
