//! What a policy can ask while it decides one request.

use std::sync::{Arc, OnceLock};

use kv_index::{SharedPrefixIndex, WorkerMatch};
use routing::{DecisionQueries, Tier, Worker, WorkerId};

use crate::context::RequestContext;

/// Longest header value a policy is shown, in bytes.
const LONGEST_HEADER: usize = 4096;
/// Never shown to a policy.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The candidates of one call, and the request they are for.
pub(crate) struct CallQueries {
    pub(crate) request: Arc<RequestContext>,
    pub(crate) index: Arc<SharedPrefixIndex>,
    pub(crate) ids: Box<[WorkerId]>,
    /// Filled by the first question about the index.
    matches: OnceLock<Vec<WorkerMatch>>,
}

impl CallQueries {
    pub(crate) fn new(
        request: Arc<RequestContext>,
        index: Arc<SharedPrefixIndex>,
        ids: &[WorkerId],
        known: Option<&[WorkerMatch]>,
    ) -> Self {
        let matches = known.map_or_else(OnceLock::new, |known| OnceLock::from(known.to_vec()));
        Self {
            request,
            index,
            ids: ids.into(),
            matches,
        }
    }

    /// One match a candidate; empty while the tokens are unknown.
    fn matches(&self) -> &[WorkerMatch] {
        self.matches.get_or_init(|| {
            let mut matches = Vec::new();
            if let Some(query) = self.request.prefix_query() {
                self.index.matches(&query, &self.ids, &mut matches);
            }
            matches
        })
    }
}

impl DecisionQueries for CallQueries {
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        if !self.ids.contains(&id) {
            return None;
        }
        let mut members = self.request.pool().members.iter();
        let member = members.find(|member| member.worker.id() == id)?;
        Some(Arc::clone(&member.worker))
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        let tokens = |found: &WorkerMatch| match tier {
            Tier::Device => found.device_tokens,
            Tier::Host => found.host_tokens,
            Tier::Disk | Tier::Shared => found.any_tokens,
        };
        self.matches().iter().map(tokens).collect()
    }

    fn holders(&self, tokens: u32) -> u32 {
        let holders = self.matches().iter().filter(|found| found.any_tokens >= tokens);
        u32::try_from(holders.count()).unwrap_or(u32::MAX)
    }

    fn header(&self, name: &str) -> Option<String> {
        if SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(name)) {
            return None;
        }
        let value = self.request.headers.get(name)?;
        let text = value.to_str().ok()?;
        (text.len() <= LONGEST_HEADER).then(|| text.to_owned())
    }

    fn model(&self) -> &str {
        &self.request.model
    }

    fn path(&self) -> &str {
        self.request.endpoint.path()
    }
}
