//! Speculative insert: once a request is sent, its worker is expected to hold its prompt before the engine's events
//! confirm it.
//!
//! The expectation lasts as long as the pool configures. Where an engine publishes no events, it takes their place.

use routing::WorkerId;

use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::sources::DecisionSources;

/// Records in the index that the request's prompt is expected at its worker.
pub(crate) fn expect(sources: &DecisionSources, request: &InferenceRequest, worker: WorkerId) {
    let Some(prompt) = &request.params.prompt else {
        return;
    };
    let is_live = sources.live.is_live(worker);
    if let Some(sent) = request.pool().expectation.sent(worker, is_live) {
        sources.index.expect(&sent, &mut prompt.lock());
    }
}
