//! One router's view of the agreed entries: the store's, and its own proposals that the store does not have yet.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::entry::AgreedEntry;
use crate::key::AgreedKey;
use crate::store::{AgreedWrite, WriteOutcome};

/// Most entries. More are refused and counted.
pub const MOST_ENTRIES: usize = 8_192;

/// Entry with its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownEntry {
    /// Revision of the store; 0 for a proposal that the store does not have.
    pub revision: u64,
    /// The entry.
    pub entry: AgreedEntry,
}

/// Decision of this router that the store does not have yet.
#[derive(Debug, Clone)]
struct Proposal {
    entry: AgreedEntry,
    /// Revision that it replaces.
    base: u64,
    progress: Progress,
}

/// Progress of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Not written yet.
    Waiting,
    /// Sent to the store.
    Sent,
    /// The store has another revision, which the watch is about to deliver.
    Refused,
}

/// State of the connection to the store.
#[derive(Debug, Clone)]
enum Link {
    Away,
    /// Entries of the store as it opens.
    Opening(BTreeMap<AgreedKey, KnownEntry>),
    Synced,
}

/// Counters of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgreementCounts {
    /// Own decisions that the store accepted.
    pub accepted: u64,
    /// Own decisions that gave way to another router's.
    pub superseded: u64,
    /// Entries that the store had lost and that this router proposed again.
    pub restored: u64,
    /// Entries beyond [`MOST_ENTRIES`].
    pub refused: u64,
}

/// One router's view.
#[derive(Debug)]
pub struct Agreement {
    router: String,
    /// Number of the latest own decision.
    number: u64,
    link: Link,
    entries: BTreeMap<AgreedKey, KnownEntry>,
    proposals: BTreeMap<AgreedKey, Proposal>,
    counts: AgreementCounts,
}

impl Agreement {
    /// Returns the view of a router before it reached the store.
    #[must_use]
    pub fn new(router: &str) -> Self {
        Self {
            router: router.to_owned(),
            number: 0,
            link: Link::Away,
            entries: BTreeMap::new(),
            proposals: BTreeMap::new(),
            counts: AgreementCounts::default(),
        }
    }

    /// Decides for this router at once, and proposes the decision to the others.
    pub fn propose(&mut self, key: AgreedKey, value: Value, at_unix_ms: u64) {
        self.number += 1;
        let entry = AgreedEntry::new(&self.router, self.number, at_unix_ms, value);
        self.add(key, entry);
    }

    fn add(&mut self, key: AgreedKey, entry: AgreedEntry) {
        let base = self.entries.get(&key).map_or(0, |known| known.revision);
        let proposal = Proposal {
            entry,
            base,
            progress: Progress::Waiting,
        };
        self.proposals.insert(key, proposal);
    }

    /// Records that the store opened: its entries follow.
    pub fn opened(&mut self) {
        self.link = Link::Opening(BTreeMap::new());
        for proposal in self.proposals.values_mut() {
            proposal.progress = Progress::Waiting;
        }
    }

    /// Records that the store is away.
    pub fn lost(&mut self) {
        self.link = Link::Away;
    }

    /// Records an entry of the store.
    pub fn learned(&mut self, key: AgreedKey, known: KnownEntry) {
        let map = match &mut self.link {
            Link::Opening(fresh) => fresh,
            Link::Synced | Link::Away => &mut self.entries,
        };
        if map
            .get(&key)
            .is_some_and(|before| before.revision >= known.revision)
        {
            return;
        }
        if map.len() >= MOST_ENTRIES && !map.contains_key(&key) {
            self.counts.refused += 1;
            return;
        }
        let is_synced = matches!(self.link, Link::Synced | Link::Away);
        if is_synced {
            self.settle(&key, &known, false);
            self.entries.insert(key, known);
        } else if let Link::Opening(fresh) = &mut self.link {
            fresh.insert(key, known);
        }
    }

    /// Records that the store delivered all entries. Entries that it lost are proposed again.
    pub fn synced(&mut self) {
        let Link::Opening(fresh) = std::mem::replace(&mut self.link, Link::Synced) else {
            return;
        };
        let before = std::mem::take(&mut self.entries);
        for (key, known) in &fresh {
            let is_as_before = before
                .get(key)
                .is_some_and(|old| old.entry.is_same_decision(&known.entry));
            self.settle(key, known, is_as_before);
        }
        for (key, old) in before {
            if !fresh.contains_key(&key) {
                self.counts.restored += 1;
                self.proposals.entry(key).or_insert(Proposal {
                    entry: old.entry,
                    base: 0,
                    progress: Progress::Waiting,
                });
            }
        }
        for (key, proposal) in &mut self.proposals {
            if !fresh.contains_key(key) {
                proposal.base = 0;
            }
        }
        self.entries = fresh;
    }

    /// Decides on the own proposal for a key of which the store has an entry. `is_as_before`: the entry is the one that
    /// the proposal replaces, under another revision perhaps.
    fn settle(&mut self, key: &AgreedKey, known: &KnownEntry, is_as_before: bool) {
        let Some(proposal) = self.proposals.get_mut(key) else {
            return;
        };
        if proposal.entry.is_same_decision(&known.entry) {
            self.counts.accepted += 1;
            self.proposals.remove(key);
            return;
        }
        // An earlier decision of this router, which it has replaced since.
        let is_own_earlier =
            known.entry.by == proposal.entry.by && known.entry.number < proposal.entry.number;
        if is_as_before || is_own_earlier || known.revision <= proposal.base {
            proposal.base = known.revision;
            if proposal.progress == Progress::Refused {
                proposal.progress = Progress::Waiting;
            }
            return;
        }
        if known.entry.value != proposal.entry.value {
            self.counts.superseded += 1;
        }
        self.proposals.remove(key);
    }

    /// Returns the next entry to write, if any.
    pub fn next_write(&mut self) -> Option<AgreedWrite> {
        if !self.is_synced() {
            return None;
        }
        let mut proposals = self.proposals.iter_mut();
        let (key, proposal) = proposals.find(|(_, proposal)| proposal.progress == Progress::Waiting)?;
        proposal.progress = Progress::Sent;
        Some(AgreedWrite {
            key: key.clone(),
            bytes: proposal.entry.encode(),
            expected: proposal.base,
            number: proposal.entry.number,
        })
    }

    /// Records the outcome of a write.
    pub fn written(&mut self, write: &AgreedWrite, outcome: &WriteOutcome) {
        let Some(proposal) = self.proposals.get_mut(&write.key) else {
            return;
        };
        let is_latest = proposal.entry.number == write.number;
        match outcome {
            WriteOutcome::Accepted(revision) => {
                if let Ok(entry) = AgreedEntry::decode(&write.bytes) {
                    let known = KnownEntry {
                        revision: *revision,
                        entry,
                    };
                    self.learned(write.key.clone(), known);
                }
            }
            WriteOutcome::Conflict if is_latest => proposal.progress = Progress::Refused,
            WriteOutcome::Unknown(_) if is_latest => proposal.progress = Progress::Waiting,
            WriteOutcome::Conflict | WriteOutcome::Unknown(_) => {}
        }
    }

    /// Returns whether the view has every entry of the store.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        matches!(self.link, Link::Synced)
    }

    /// Returns the store's entries.
    pub fn entries(&self) -> impl Iterator<Item = (&AgreedKey, &KnownEntry)> {
        self.entries.iter()
    }

    /// Returns the own decisions that the store does not have.
    pub fn proposals(&self) -> impl Iterator<Item = (&AgreedKey, &AgreedEntry)> {
        self.proposals
            .iter()
            .map(|(key, proposal)| (key, &proposal.entry))
    }

    /// Returns the entry that this router follows: its own proposal, else the store's.
    #[must_use]
    pub fn followed(&self, key: &AgreedKey) -> Option<&AgreedEntry> {
        let own = self.proposals.get(key).map(|proposal| &proposal.entry);
        own.or_else(|| self.entries.get(key).map(|known| &known.entry))
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> AgreementCounts {
        self.counts
    }
}
