//! Decision of one router that the store does not have yet, and what it may replace.

use crate::entry::{AgreedEntry, Judged};

/// Decision of this router that the store does not have yet.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) entry: AgreedEntry,
    /// Revision that it replaces.
    pub(crate) base: u64,
    pub(crate) progress: Progress,
    over: Over,
}

/// Contents of the store that a proposal may replace.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Over {
    /// Those at the time of the proposal, and earlier decisions of this router.
    Latest,
    /// Those by which the decision was judged.
    Judged(Judged),
}

/// Progress of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not written yet.
    Waiting,
    /// Sent to the store.
    Sent,
    /// The store has another revision, which the watch is about to deliver.
    Refused,
}

impl Proposal {
    /// Returns a proposal over a revision, whatever its contents.
    pub(crate) fn latest(entry: AgreedEntry, base: u64) -> Self {
        Self {
            entry,
            base,
            progress: Progress::Waiting,
            over: Over::Latest,
        }
    }

    /// Returns a proposal over a revision, which may replace no other contents than those.
    pub(crate) fn judged(entry: AgreedEntry, base: u64, judged: Judged) -> Self {
        Self {
            over: Over::Judged(judged),
            ..Self::latest(entry, base)
        }
    }

    /// Replaces this revision of the store.
    pub(crate) fn replace(&mut self, revision: u64) {
        self.base = revision;
        if self.progress == Progress::Refused {
            self.progress = Progress::Waiting;
        }
    }

    /// Returns whether the proposal may replace an entry that the store has now. `is_as_before`: the store had the same
    /// decision before it opened again.
    pub(crate) fn may_replace(&self, known: &AgreedEntry, is_as_before: bool) -> bool {
        match &self.over {
            // An earlier decision of this router has been replaced since.
            Over::Latest => is_as_before || known.by == self.entry.by && known.number < self.entry.number,
            Over::Judged(judged) => judged.is_decision(known),
        }
    }

    /// Returns whether the proposal may replace the removal of an entry.
    pub(crate) fn may_replace_removal(&self) -> bool {
        match &self.over {
            Over::Latest => true,
            Over::Judged(judged) => judged.is_none(),
        }
    }
}
