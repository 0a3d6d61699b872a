//! Queries of a policy about one request: the prefix index, the pool's workers and queue, and the request's head.

use std::sync::Arc;

use kv_index::SharedPrefixIndex;
use placement::{PrefixMatches, QuerySource};
use routing::{Worker, WorkerId, add_held_elsewhere, is_secret_header};

use crate::dispatch::inference_request::InferenceRequest;
use crate::dispatch::matches::find_matches;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::sources::DecisionSources;
use crate::fleet::feeds::LiveFeeds;

/// Longest header value that a policy may read, in bytes.
const LONGEST_HEADER: usize = 4096;

/// The request that a policy queries, and the index.
#[derive(Debug)]
pub(crate) struct RequestQueries {
    request: Arc<InferenceRequest>,
    /// Pool of the decision. The request may move to a later one.
    pool: Arc<PoolState>,
    index: Arc<SharedPrefixIndex>,
    live: Arc<LiveFeeds>,
    /// Charge that the request's tenant has for it.
    charged: Option<f64>,
}

impl RequestQueries {
    pub(crate) fn new(
        sources: &DecisionSources,
        request: &Arc<InferenceRequest>,
        pool: &Arc<PoolState>,
        charged: Option<f64>,
    ) -> Self {
        Self {
            request: Arc::clone(request),
            pool: Arc::clone(pool),
            index: Arc::clone(&sources.index),
            live: Arc::clone(&sources.live),
            charged,
        }
    }
}

impl QuerySource for RequestQueries {
    fn find_matches(&self, ids: &[WorkerId], matches: &mut PrefixMatches) {
        if self.request.params.prompt.is_some() {
            self.pool.metrics.index_queries.inc();
        }
        find_matches(&self.request, &self.index, &self.live, ids, matches);
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        let mut members = self.pool.workers.members.iter();
        let member = members.find(|member| member.worker.id() == id)?;
        Some(Arc::clone(&member.worker))
    }

    fn ahead(&self, ids: &[WorkerId], most: &[u32]) -> Vec<u32> {
        let pool = &self.pool;
        let input = self.request.admission();
        let mut ahead = pool.queue.controller.ahead(&input, self.charged, ids, most);
        let members = pool.workers.members.iter();
        add_held_elsewhere(&mut ahead, ids, most, members.map(|member| &*member.worker));
        ahead
    }

    fn header(&self, name: &str) -> Option<String> {
        let shown = &self.request.settings.policy_headers;
        if is_secret_header(name) || !shown.iter().any(|shown| shown.eq_ignore_ascii_case(name)) {
            return None;
        }
        let value = self.request.head.headers.get(name)?;
        let text = value.to_str().ok()?;
        (text.len() <= LONGEST_HEADER).then(|| text.to_owned())
    }

    fn model(&self) -> &str {
        &self.request.params.model
    }

    fn path(&self) -> &str {
        self.request.head.target.path()
    }
}
