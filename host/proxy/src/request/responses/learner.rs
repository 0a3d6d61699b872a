//! Learner of response ids: reads the id of a response from the beginning of its answer, while it passes.
//!
//! It also records the counted tokens of a response, because several answers may have the usage of one response.

use std::sync::Arc;
use std::time::Instant;

use inference_api::{Endpoint, ResponseIdFinder};
use routing::WorkerId;

use super::table::{OutputTokens, ResponseEntry, ResponseKey, ResponseTable};
use crate::dispatch::inference_request::InferenceRequest;
use crate::limits::edge_settings::ResponseLimits;
use crate::proxy::Proxy;

/// Learner for one answer.
#[derive(Debug)]
pub(crate) struct ResponseLearner {
    table: Arc<ResponseTable>,
    /// Search for the id. `None` once it is over.
    search: Option<IdSearch>,
    /// Entry of the response, once its id is known.
    entry: Option<ResponseEntry>,
    /// `true` for the answer that makes the response, `false` for one by its id.
    is_own: bool,
    /// Output tokens of the own answer that the entry has.
    counted_tokens: u64,
}

/// Search for the id of a response, with the facts that are stored under it.
#[derive(Debug)]
struct IdSearch {
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
        search: Some(IdSearch {
            limits,
            client: request
                .sender
                .client
                .as_ref()
                .map(|client| Arc::clone(&client.name)),
            worker: request.pool().workers.members[member].worker.id(),
            finder: ResponseIdFinder::default(),
        }),
        entry: None,
        is_own: true,
        counted_tokens: 0,
    })
}

impl ResponseLearner {
    /// Creates the learner of an answer to a request for a response by its id.
    pub(super) fn of_known(proxy: &Proxy, id: &str) -> Self {
        Self {
            table: Arc::clone(&proxy.responses),
            search: None,
            entry: Some(proxy.responses.entry(id)),
            is_own: false,
            counted_tokens: 0,
        }
    }

    /// Searches another chunk of the answer for the id.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let Some(search) = &mut self.search else {
            return;
        };
        if let Some(id) = search.finder.push(chunk) {
            let key = ResponseKey {
                client: search.client.as_deref(),
                id: &id,
            };
            self.entry = self
                .table
                .store(key, search.worker, search.limits, Instant::now());
        }
        if search.finder.is_over() {
            self.search = None;
        }
    }

    /// Returns `true` for the answer that makes the response, `false` for one by its id.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Records that the response's own answer counts so many output tokens. The table is locked only for more of them.
    pub(crate) fn count_own(&mut self, so_far: u64) {
        if let Some(entry) = self.entry
            && so_far > self.counted_tokens
        {
            self.counted_tokens = so_far;
            self.table.count_own(entry, so_far);
        }
    }

    /// Records the end of the response's own answer. Returns the output tokens that it must count; `None` if it states
    /// its usage.
    pub(crate) fn close(&self, is_stated: bool) -> Option<u64> {
        self.table.close(self.entry?, is_stated)
    }

    /// Records the output tokens of an answer by the response's id. Returns the number that was counted before;
    /// `None` if this answer counts none.
    pub(crate) fn count_by_id(&self, tokens: OutputTokens) -> Option<u64> {
        self.table.count_by_id(self.entry?, tokens)
    }
}
