//! What the prefix index says of the candidates of one call. The only file that asks it about prefixes, so that
//! whoever reads an answer, be it a column, an import, a booking or a header, reads the same.

use kv_index::{Prompt, SharedPrefixIndex, WorkerMatch};
use routing::{Tier, WorkerId};

use crate::feeds::LiveFeeds;

/// One answer a candidate, row by row; empty while the prompt's tokens are unknown.
#[derive(Debug, Default, Clone)]
pub(crate) struct Matches {
    /// Nothing where it is not known.
    found: Vec<WorkerMatch>,
    /// Whether the candidate's feed is live, or its pool assumes a cache. What the index has of others is out of date.
    is_known: Vec<bool>,
}

impl Matches {
    /// Whether the index was not asked, or there was nothing to ask it.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Those of some rows.
    pub(crate) fn only(&self, rows: &[usize]) -> Self {
        Self {
            found: rows
                .iter()
                .filter_map(|row| self.found.get(*row).copied())
                .collect(),
            is_known: rows
                .iter()
                .filter_map(|row| self.is_known.get(*row).copied())
                .collect(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.found.clear();
        self.is_known.clear();
    }

    /// Asks once for all candidates.
    pub(crate) fn ask(
        &mut self,
        prompt: &mut Prompt<'_>,
        ids: &[WorkerId],
        index: &SharedPrefixIndex,
        feeds: &LiveFeeds,
        is_assumed: bool,
    ) {
        self.clear();
        index.matches(prompt, ids, &mut self.found);
        let live = feeds.now();
        for (id, found) in ids.iter().zip(&mut self.found) {
            let is_live = live.contains(*id);
            if !is_live {
                // Whatever events told is out of date: what is expected is all there is.
                let tokens = if is_assumed { found.expected_tokens } else { 0 };
                *found = WorkerMatch {
                    device_tokens: tokens,
                    host_tokens: tokens,
                    any_tokens: tokens,
                    expected_tokens: tokens,
                    rank: found.rank,
                };
            }
            self.is_known.push(is_live || is_assumed);
        }
    }

    /// A candidate's match, where it is known.
    pub(crate) fn get(&self, row: usize) -> Option<&WorkerMatch> {
        self.found.get(row).filter(|_| self.is_known[row])
    }

    /// The longest match of any candidate, on any tier; none where none is known.
    pub(crate) fn best(&self) -> Option<u32> {
        let known = (0..self.found.len()).filter_map(|row| self.get(row));
        known.map(|found| found.any_tokens).max()
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
