//! Speculative insert: once a request is sent, its worker is expected to hold its prompt before the engine's events
//! confirm it.
//!
//! The expectation lasts as long as the pool configures. Where an engine publishes no events, it takes their place.
//! It is taken back where the worker did not get the prompt: it was not reached, or refused the request.

use kv_index::Prediction;
use routing::WorkerId;

use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::sources::DecisionSources;

/// Records in the index that the request's prompt is expected at its worker.
pub(crate) fn expect(
    sources: &DecisionSources,
    request: &InferenceRequest,
    worker: WorkerId,
) -> Option<Prediction> {
    let prompt = request.params.prompt.as_ref()?;
    let is_live = sources.live.is_live(worker);
    let sent = request.pool().prompts.expectation.sent(worker, is_live)?;
    sources.index.expect(&sent, &mut prompt.lock())
}

/// Records in the index that the worker did not get the request's prompt.
pub(crate) fn retract(sources: &DecisionSources, request: &InferenceRequest, prediction: Prediction) {
    if let Some(prompt) = &request.params.prompt {
        sources.index.retract(prediction, &mut prompt.lock());
    }
}
