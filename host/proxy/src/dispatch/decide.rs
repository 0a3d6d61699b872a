//! Decisions of the server: a request, or the decode leg of one, is placed on workers of its pool.

use std::cell::Cell;
use std::sync::Arc;

use placement::{
    AttemptState, Candidates, DecisionContext, EligibleSet, NoCandidate, PlacementOutcome, PlacementPart,
};

use crate::dispatch::call_observer::CallObserver;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::router_view::{HoldWindow, RouterView};
use crate::dispatch::shadow::{Captured, DecidedPlacement};

thread_local! {
    /// Buffers of the thread, taken for the time of a decision.
    static CANDIDATES: Cell<Candidates> = Cell::default();
}

/// Decides once. Nothing is allocated but the one shared value that a policy queries.
pub(crate) fn decide(
    dispatcher: &Dispatcher,
    request: &Arc<InferenceRequest>,
    part: PlacementPart,
    state: AttemptState<'_>,
    window: HoldWindow,
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
    // A request is offered to its shadows once: further tries are for want of another worker.
    if let PlacementOutcome::Dispatch(placement) = &outcome
        && part == PlacementPart::Request
        && state.tried.is_empty()
    {
        let decided = DecidedPlacement {
            eligible,
            candidates: &candidates,
            placement: *placement,
            state,
        };
        Captured::offer(&dispatcher.shadows, &view, decided);
    }
    CANDIDATES.set(candidates);
    Ok(outcome)
}
