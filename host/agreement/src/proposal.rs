//! Decision of one router that the store does not have yet, and what it may replace.

use crate::entry::{AgreedEntry, DecisionId, Judged};

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
    Latest {
        /// The decision at that time, if the store has lost it since: it and earlier ones may come back.
        lost: Option<Lost>,
    },
    /// Those by which the decision was judged.
    Judged(Judged),
    /// Earlier decisions: the store has lost this one.
    Restored,
}

/// Decision that the store has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lost {
    decision: DecisionId,
    at_unix_ms: u64,
}

impl Lost {
    /// Returns whether an entry is this decision or an earlier one.
    fn covers(&self, known: &AgreedEntry) -> bool {
        known.at_unix_ms < self.at_unix_ms || known.id() == self.decision
    }
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
            over: Over::Latest { lost: None },
        }
    }

    /// Returns a proposal over a revision, which may replace no other contents than those.
    pub(crate) fn judged(entry: AgreedEntry, base: u64, judged: Judged) -> Self {
        Self {
            over: Over::Judged(judged),
            ..Self::latest(entry, base)
        }
    }

    /// Returns the proposal of a decision that the store has lost, by this or another router.
    pub(crate) fn restored(entry: AgreedEntry, base: u64) -> Self {
        Self {
            over: Over::Restored,
            ..Self::latest(entry, base)
        }
    }

    /// Records that the store has lost the decision that this one replaces.
    pub(crate) fn has_lost(&mut self, old: &AgreedEntry) {
        if let Over::Latest { lost } = &mut self.over
            && lost.as_ref().is_none_or(|lost| lost.at_unix_ms <= old.at_unix_ms)
        {
            *lost = Some(Lost {
                decision: old.id(),
                at_unix_ms: old.at_unix_ms,
            });
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
            Over::Latest { lost } => {
                let is_own = known.by == self.entry.by && known.number < self.entry.number;
                is_as_before || is_own || lost.as_ref().is_some_and(|lost| lost.covers(known))
            }
            Over::Judged(judged) => judged.is_decision(known),
            Over::Restored => known.at_unix_ms < self.entry.at_unix_ms,
        }
    }

    /// Returns whether the decision was judged by the contents of its key.
    pub(crate) fn is_judged(&self) -> bool {
        matches!(self.over, Over::Judged(_))
    }

    /// Returns whether the proposal may replace the removal of an entry.
    pub(crate) fn may_replace_removal(&self) -> bool {
        match &self.over {
            Over::Latest { .. } | Over::Restored => true,
            Over::Judged(judged) => judged.is_none(),
        }
    }
}
