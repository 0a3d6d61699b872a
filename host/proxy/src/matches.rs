//! What the prefix index says of the candidates of one call. The only file that asks it about prefixes, so that
//! whoever reads an answer, be it a column, an import, a booking or a header, reads the same.

use kv_index::{PrefixQuery, SharedPrefixIndex, WorkerMatch};
use routing::{Tier, WorkerId};

use crate::feeds::LiveFeeds;

/// One answer a candidate, row by row; empty while the prompt's tokens are unknown.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    /// Nothing where it is not known.
    found: Vec<WorkerMatch>,
    /// Whether the candidate's feed is live. What the index has of others is out of date.
    is_known: Vec<bool>,
}

impl Matches {
    pub(crate) fn clear(&mut self) {
        self.found.clear();
        self.is_known.clear();
    }

    /// Asks once for all candidates.
    pub(crate) fn ask(
        &mut self,
        query: &PrefixQuery<'_>,
        ids: &[WorkerId],
        index: &SharedPrefixIndex,
        feeds: &LiveFeeds,
    ) {
        self.clear();
        index.matches(query, ids, &mut self.found);
        let live = feeds.now();
        self.is_known.extend(ids.iter().map(|id| live.contains(*id)));
        for (found, is_known) in self.found.iter_mut().zip(&self.is_known) {
            if !is_known {
                *found = WorkerMatch::default();
            }
        }
    }

    /// A candidate's match, where it is known.
    pub(crate) fn get(&self, row: usize) -> Option<&WorkerMatch> {
        self.found.get(row).filter(|_| self.is_known[row])
    }

    /// For each candidate, tokens held on `tier` or a faster one; 0 where it is not known.
    pub(crate) fn on(&self, tier: Tier) -> impl Iterator<Item = u32> {
        self.found.iter().map(move |found| match tier {
            Tier::Device => found.device_tokens,
            Tier::Host => found.host_tokens,
            Tier::Disk | Tier::Shared => found.any_tokens,
        })
    }
}
