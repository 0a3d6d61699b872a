//! Learner of response ids: reads the id of a response from the beginning of its answer, while it passes.

use std::sync::Arc;
use std::time::Instant;

use inference_api::{Endpoint, ResponseIdFinder};
use routing::WorkerId;

use super::table::{ResponseKey, ResponseTable};
use crate::dispatch::inference_request::InferenceRequest;
use crate::limits::edge_settings::ResponseLimits;
use crate::proxy::Proxy;

/// Learner for one answer whose id is not known yet.
#[derive(Debug)]
pub(crate) struct ResponseLearner {
    table: Arc<ResponseTable>,
    limits: ResponseLimits,
    /// Name of the client. `None` where clients need no key.
    client: Option<Arc<str>>,
    worker: WorkerId,
    finder: ResponseIdFinder,
}

/// Returns the learner of an answer's id, where the request may make a response that its worker keeps.
pub(crate) fn learner(
    proxy: &Proxy,
    request: &InferenceRequest,
    limits: ResponseLimits,
    member: usize,
) -> Option<ResponseLearner> {
    (request.head.endpoint == Endpoint::Responses && limits.most > 0).then(|| ResponseLearner {
        table: Arc::clone(&proxy.responses),
        limits,
        client: request
            .sender
            .client
            .as_ref()
            .map(|client| Arc::clone(&client.name)),
        worker: request.pool().workers.members[member].worker.id(),
        finder: ResponseIdFinder::default(),
    })
}

impl ResponseLearner {
    /// Searches another chunk of the answer. Returns `true` if that was enough.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> bool {
        if let Some(id) = self.finder.push(chunk) {
            let key = ResponseKey {
                client: self.client.as_deref().unwrap_or_default(),
                id: &id,
            };
            self.table.store(key, self.worker, self.limits, Instant::now());
        }
        self.finder.is_over()
    }
}
