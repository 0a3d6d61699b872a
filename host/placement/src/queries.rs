//! Queries of a policy during one call: the candidates, their prefix matches, the queue and the request.

use std::sync::{Arc, OnceLock};

use routing::{DecisionQueries, Tier, Worker, WorkerId};

use crate::candidates::Candidates;
use crate::matches::PrefixMatches;
use crate::query_source::QuerySource;

/// The queries of one call. [`Candidates`] lends it two of its buffers for as long.
#[derive(Debug)]
pub struct CallQueries<S> {
    source: S,
    /// Ids of the candidates, row by row.
    ids: Vec<WorkerId>,
    /// Filled at once for a policy that has a column of matches, else by the first query.
    matches: OnceLock<PrefixMatches>,
}

impl<S: QuerySource> CallQueries<S> {
    /// Begins a call. With `needs_prefix` the index is looked up at once.
    pub(crate) fn begin(source: S, needs_prefix: bool, candidates: &mut Candidates) -> Self {
        let queries = Self {
            source,
            ids: std::mem::take(&mut candidates.ids),
            matches: OnceLock::new(),
        };
        if needs_prefix {
            let buffer = std::mem::take(&mut candidates.matches);
            queries.matches.get_or_init(|| queries.look_up(buffer));
        }
        queries
    }

    /// Returns the buffers.
    pub(crate) fn end(self, candidates: &mut Candidates) {
        candidates.ids = self.ids;
        if let Some(matches) = self.matches.into_inner() {
            candidates.matches = matches;
        }
    }

    /// Returns the ids of the candidates, row by row.
    pub(crate) fn ids(&self) -> &[WorkerId] {
        &self.ids
    }

    /// Returns the matches, if the index was looked up.
    pub(crate) fn known_matches(&self) -> Option<&PrefixMatches> {
        self.matches.get()
    }

    /// Looks up the index without keeping the result.
    pub(crate) fn look_up(&self, mut matches: PrefixMatches) -> PrefixMatches {
        self.source.find_matches(&self.ids, &mut matches);
        matches
    }

    fn matches(&self) -> &PrefixMatches {
        self.matches
            .get_or_init(|| self.look_up(PrefixMatches::default()))
    }
}

impl<S: QuerySource> DecisionQueries for CallQueries<S> {
    fn candidates(&self) -> &[WorkerId] {
        &self.ids
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.ids.contains(&id).then(|| self.source.worker(id)).flatten()
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        self.matches().on(tier).collect()
    }

    fn holders(&self, tokens: u32) -> u32 {
        // `Disk` is the slowest tier: it counts all that is held.
        let holders = self.matches().on(Tier::Disk).filter(|held| *held >= tokens);
        u32::try_from(holders.count()).unwrap_or(u32::MAX)
    }

    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        self.source.ahead(&self.ids, most)
    }

    fn header(&self, name: &str) -> Option<String> {
        self.source.header(name)
    }

    fn model(&self) -> &str {
        self.source.model()
    }

    fn path(&self) -> &str {
        self.source.path()
    }
}
