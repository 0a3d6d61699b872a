//! What a policy can ask while it decides one request.

use std::sync::{Arc, OnceLock};

use kv_index::SharedPrefixIndex;
use routing::{DecisionQueries, Tier, Worker, WorkerId, is_secret_header};

use crate::candidates::Candidates;
use crate::context::RequestContext;
use crate::feeds::LiveFeeds;
use crate::matches::Matches;
use crate::proxy::Proxy;

/// Longest header value a policy is shown, in bytes.
const LONGEST_HEADER: usize = 4096;

/// The candidates of one call, and the request they are for. Shared with the policy, so that the buffers in it are
/// lent by [`Candidates`] for the call.
pub(crate) struct CallQueries {
    request: Arc<RequestContext>,
    index: Arc<SharedPrefixIndex>,
    live: Arc<LiveFeeds>,
    /// Of the candidates, row by row.
    pub(crate) ids: Vec<WorkerId>,
    /// Filled at once for a policy that has a column of it, else by the first question.
    matches: OnceLock<Matches>,
}

impl CallQueries {
    /// `asks_at_once`: the policy has a column of matches.
    pub(crate) fn begin(
        proxy: &Proxy,
        request: &Arc<RequestContext>,
        asks_at_once: bool,
        candidates: &mut Candidates,
    ) -> Self {
        let queries = Self {
            request: Arc::clone(request),
            index: Arc::clone(&proxy.index),
            live: Arc::clone(&proxy.live),
            ids: std::mem::take(&mut candidates.ids),
            matches: OnceLock::new(),
        };
        if asks_at_once {
            let room = std::mem::take(&mut candidates.matches);
            queries.matches.get_or_init(|| queries.ask(room));
        }
        queries
    }

    /// Gives the buffers back.
    pub(crate) fn end(self, candidates: &mut Candidates) {
        candidates.ids = self.ids;
        if let Some(matches) = self.matches.into_inner() {
            candidates.matches = matches;
        }
    }

    /// Takes over what the index said before.
    pub(crate) fn know(&self, matches: Matches) {
        self.matches.get_or_init(|| matches);
    }

    /// The matches, if the index was asked.
    pub(crate) fn asked(&self) -> Option<&Matches> {
        self.matches.get()
    }

    fn matches(&self) -> &Matches {
        self.matches.get_or_init(|| self.ask(Matches::default()))
    }

    /// Asks the index, and remembers nothing of it here.
    pub(crate) fn ask(&self, mut matches: Matches) -> Matches {
        match &self.request.prompt {
            Some(prompt) => {
                self.request.pool().metrics.index_queries.inc();
                let is_assumed = self.request.pool().expectation.assumed.is_some();
                matches.ask(&mut prompt.lock(), &self.ids, &self.index, &self.live, is_assumed);
            }
            None => matches.clear(),
        }
        matches
    }
}

impl DecisionQueries for CallQueries {
    fn candidates(&self) -> &[WorkerId] {
        &self.ids
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        if !self.ids.contains(&id) {
            return None;
        }
        let mut members = self.request.pool().members.iter();
        let member = members.find(|member| member.worker.id() == id)?;
        Some(Arc::clone(&member.worker))
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        self.matches().on(tier).collect()
    }

    fn holders(&self, tokens: u32) -> u32 {
        // `Disk` is the slowest tier: whatever is held at all.
        let holders = self.matches().on(Tier::Disk).filter(|held| *held >= tokens);
        u32::try_from(holders.count()).unwrap_or(u32::MAX)
    }

    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        self.request.pool().queue.ahead(&self.ids, most)
    }

    fn header(&self, name: &str) -> Option<String> {
        let shown = &self.request.snapshot.policy_headers;
        if is_secret_header(name) || !shown.iter().any(|shown| shown.eq_ignore_ascii_case(name)) {
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
        self.request.target.path()
    }
}
