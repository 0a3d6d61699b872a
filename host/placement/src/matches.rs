//! Prefix matches of the candidates of one call, and the rule of what counts as known of a worker's cache.

use kv_index::WorkerMatch;
use routing::Tier;

/// Source of the knowledge of a worker's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKnowledge {
    /// Events arrive: the index is right.
    Live,
    /// Nothing is published. Only the prompts that were sent to the worker are expected there.
    Assumed,
    /// Nothing is known. What the index still has of it is out of date.
    Unknown,
}

/// One match a candidate, row by row. Empty where the index was not queried or the prompt's tokens are unknown.
#[derive(Debug, Default, Clone)]
pub struct PrefixMatches {
    /// Zeros where the worker's cache is unknown.
    found: Vec<WorkerMatch>,
    /// Flag of each worker: set if its cache is known.
    is_known: Vec<bool>,
}

impl PrefixMatches {
    /// Returns whether there is no match of any row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.found.clear();
        self.is_known.clear();
    }

    /// Replaces all rows by those that `look_up` writes. `knowledge` is that of a row's worker.
    pub fn replace(
        &mut self,
        look_up: impl FnOnce(&mut Vec<WorkerMatch>),
        knowledge: impl Fn(usize) -> CacheKnowledge,
    ) {
        self.clear();
        look_up(&mut self.found);
        let rows = self.found.iter_mut().enumerate();
        self.is_known.extend(rows.map(|(row, found)| {
            let knowledge = knowledge(row);
            if knowledge != CacheKnowledge::Live {
                let is_assumed = knowledge == CacheKnowledge::Assumed;
                let tokens = if is_assumed { found.expected_tokens } else { 0 };
                *found = WorkerMatch {
                    device_tokens: tokens,
                    host_tokens: tokens,
                    any_tokens: tokens,
                    expected_tokens: tokens,
                    rank: found.rank,
                };
            }
            knowledge != CacheKnowledge::Unknown
        }));
    }

    /// Replaces all rows by some rows of `other`.
    pub fn copy_rows(&mut self, other: &Self, rows: impl Iterator<Item = usize>) {
        self.clear();
        for row in rows {
            if let (Some(found), Some(is_known)) = (other.found.get(row), other.is_known.get(row)) {
                self.found.push(*found);
                self.is_known.push(*is_known);
            }
        }
    }

    /// Returns the match of each row, if the worker's cache is known.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Option<&WorkerMatch>> {
        let rows = self.found.iter().zip(&self.is_known);
        rows.map(|(found, is_known)| is_known.then_some(found))
    }

    /// Returns the match of a row, if the worker's cache is known.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&WorkerMatch> {
        self.found.get(row).filter(|_| self.is_known[row])
    }

    /// Returns the longest match of any row on any tier. `None` if no cache is known.
    #[must_use]
    pub fn best(&self) -> Option<u32> {
        self.best_of(|_| true)
    }

    /// Returns the longest match on any tier of the rows that count. `None` if none of their caches is known.
    pub(crate) fn best_of(&self, counts: impl Fn(usize) -> bool) -> Option<u32> {
        let rows = self.rows().enumerate().filter(|(row, _)| counts(*row));
        let known = rows.filter_map(|(_, found)| found);
        known.map(|found| found.any_tokens).max()
    }

    /// Returns for each row the tokens held on `tier` or a faster one; 0 where the cache is unknown.
    pub fn on(&self, tier: Tier) -> impl Iterator<Item = u32> {
        self.found.iter().map(move |found| match tier {
            Tier::Device => found.device_tokens,
            Tier::Host => found.host_tokens,
            Tier::Disk | Tier::Shared => found.any_tokens,
        })
    }
}
