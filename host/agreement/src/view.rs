//! One router's view of the agreed entries: the store's, and its own proposals that the store does not have yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::Value;

use crate::entry::{AgreedEntry, Judged};
use crate::key::AgreedKey;
use crate::proposal::{Progress, Proposal};
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

impl KnownEntry {
    /// Returns whether this entry is later than one that the store has in its place: the store went back to an earlier
    /// state. Revisions of a store that lost all are lower too, so the time of the decision counts as well.
    fn is_later_than(&self, now: &Self) -> bool {
        self.revision >= now.revision && self.entry.at_unix_ms > now.entry.at_unix_ms
    }
}

/// Contents of the store.
#[derive(Debug, Clone, Default)]
struct Contents {
    entries: BTreeMap<AgreedKey, KnownEntry>,
    /// Revisions at which keys were removed: the next write of such a key replaces that revision.
    removed: BTreeMap<AgreedKey, u64>,
    /// Revisions of entries that this router cannot read: the next write of such a key replaces that revision.
    unreadable: BTreeMap<AgreedKey, u64>,
}

/// State of the connection to the store.
#[derive(Debug, Clone)]
enum Link {
    Away,
    /// Contents of the store as it opens.
    Opening(Contents),
    Synced,
}

/// Counters of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgreementCounts {
    /// Own decisions that the store accepted.
    pub accepted: u64,
    /// Own decisions that gave way to another router's.
    pub superseded: u64,
    /// Entries that the store had lost, or had replaced by earlier ones, and that this router proposed again.
    pub restored: u64,
    /// Entries and own decisions beyond [`MOST_ENTRIES`].
    pub refused: u64,
}

/// One router's view.
#[derive(Debug)]
pub struct Agreement {
    router: String,
    /// Number of the latest own decision.
    number: u64,
    link: Link,
    /// Number of times that the store opened.
    openings: u64,
    stored: Contents,
    proposals: BTreeMap<AgreedKey, Proposal>,
    counts: AgreementCounts,
}

impl Contents {
    /// Returns the revision of a key: that of its entry, also of one that cannot be read, or of its removal.
    fn revision(&self, key: &AgreedKey) -> Option<u64> {
        let entry = self.entries.get(key).map(|known| known.revision);
        let unreadable = || self.unreadable.get(key).copied();
        entry
            .or_else(|| self.removed.get(key).copied())
            .or_else(unreadable)
    }

    /// Forgets the key, whose contents changed.
    fn clear(&mut self, key: &AgreedKey) -> Option<KnownEntry> {
        self.removed.remove(key);
        self.unreadable.remove(key);
        self.entries.remove(key)
    }

    /// Returns the revision that an entry replaces if these contents have lost it: they lack it, or went back to an
    /// earlier entry or to an earlier removal of the key.
    fn base_of_lost(&self, key: &AgreedKey, old: &KnownEntry) -> Option<u64> {
        if let Some(known) = self.entries.get(key) {
            return old.is_later_than(known).then_some(known.revision);
        }
        if let Some(revision) = self.removed.get(key) {
            return (old.revision > *revision).then_some(*revision);
        }
        (!self.unreadable.contains_key(key)).then_some(0)
    }

    fn has_room(&self, key: &AgreedKey) -> bool {
        self.entries.len() < MOST_ENTRIES || self.entries.contains_key(key)
    }
}

impl Agreement {
    /// Returns the view of a router before it reached the store.
    #[must_use]
    pub fn new(router: &str) -> Self {
        Self {
            router: router.to_owned(),
            number: 0,
            link: Link::Away,
            openings: 0,
            stored: Contents::default(),
            proposals: BTreeMap::new(),
            counts: AgreementCounts::default(),
        }
    }

    /// Decides for this router at once, and proposes the decision to the others.
    pub fn propose(&mut self, key: AgreedKey, value: Value, at_unix_ms: u64) {
        let entry = self.next_entry(value, at_unix_ms);
        let proposal = Proposal::latest(entry, self.revision(&key));
        self.proposals.insert(key, proposal);
    }

    /// Proposes a decision that was judged by these contents of the key, and that replaces no others. It gives way at
    /// once if the key has others by now. Returns whether it is proposed.
    pub fn propose_over(&mut self, key: AgreedKey, value: Value, at_unix_ms: u64, judged: Judged) -> bool {
        let now = self.judged(&key);
        if !judged.is_still(&now) {
            self.counts.superseded += 1;
            return false;
        }
        let entry = self.next_entry(value, at_unix_ms);
        self.proposals
            .insert(key, Proposal::judged(entry, now.revision(), judged));
        true
    }

    /// Returns the contents of a key, by which a decision is judged.
    #[must_use]
    pub fn judged(&self, key: &AgreedKey) -> Judged {
        let known = self.stored.entries.get(key);
        Judged::of(self.revision(key), known.map(|known| &known.entry))
    }

    fn next_entry(&mut self, value: Value, at_unix_ms: u64) -> AgreedEntry {
        self.number += 1;
        AgreedEntry::new(&self.router, self.number, at_unix_ms, value)
    }

    /// Returns the revision of a key: that of its entry, also of one that cannot be read, or of its removal. 0 for
    /// none.
    fn revision(&self, key: &AgreedKey) -> u64 {
        self.stored.revision(key).unwrap_or(0)
    }

    /// Records that the store opened: its entries follow.
    pub fn opened(&mut self) {
        self.link = Link::Opening(Contents::default());
        self.openings += 1;
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
        let is_opening = matches!(self.link, Link::Opening(_));
        let contents = self.contents();
        if contents
            .revision(&key)
            .is_some_and(|before| before >= known.revision)
        {
            return;
        }
        if !contents.has_room(&key) {
            self.counts.refused += 1;
            return;
        }
        contents.clear(&key);
        contents.entries.insert(key.clone(), known.clone());
        if !is_opening {
            self.settle(&key, &known, false);
        }
    }

    /// Records that a key was removed from the store. Followed entries stay; the own proposal is written. Returns
    /// whether the key had an entry.
    pub fn removed(&mut self, key: &AgreedKey, revision: u64) -> bool {
        let is_opening = matches!(self.link, Link::Opening(_));
        let contents = self.contents();
        if contents.revision(key).is_some_and(|before| before >= revision) {
            return false;
        }
        let had_entry = contents.clear(key).is_some();
        if contents.removed.len() < MOST_ENTRIES {
            contents.removed.insert(key.clone(), revision);
        }
        if !is_opening {
            self.settle_removal(key, revision);
        }
        had_entry
    }

    /// Records an entry that this router cannot read, perhaps of a later version. The router follows
    /// no entry then. An own decision that is older is given up; a later one replaces the entry.
    pub fn unreadable(&mut self, key: &AgreedKey, revision: u64) {
        let is_opening = matches!(self.link, Link::Opening(_));
        let contents = self.contents();
        if contents.revision(key).is_some_and(|before| before >= revision) {
            return;
        }
        contents.clear(key);
        if contents.unreadable.len() < MOST_ENTRIES {
            contents.unreadable.insert(key.clone(), revision);
        }
        if !is_opening {
            self.give_way(key);
        }
    }

    /// Decides on the own proposal for a key that was removed.
    fn settle_removal(&mut self, key: &AgreedKey, revision: u64) {
        match self.proposals.get_mut(key) {
            Some(proposal) if proposal.may_replace_removal() => proposal.replace(revision),
            _ => self.give_way(key),
        }
    }

    /// Ends the own proposal for a key.
    fn give_way(&mut self, key: &AgreedKey) {
        if self.proposals.remove(key).is_some() {
            self.counts.superseded += 1;
        }
    }

    /// Returns the contents that the store's events are about.
    fn contents(&mut self) -> &mut Contents {
        match &mut self.link {
            Link::Opening(fresh) => fresh,
            Link::Synced | Link::Away => &mut self.stored,
        }
    }

    /// Records that the store delivered all entries. Entries that it lost are proposed again, also in place of earlier
    /// ones to which it went back.
    pub fn synced(&mut self) {
        let Link::Opening(fresh) = std::mem::replace(&mut self.link, Link::Synced) else {
            return;
        };
        let before = std::mem::take(&mut self.stored);
        for (key, known) in &fresh.entries {
            let is_as_before = before
                .entries
                .get(key)
                .is_some_and(|old| old.entry.is_same_decision(&known.entry) || old.is_later_than(known));
            self.settle(key, known, is_as_before);
        }
        for (key, revision) in &fresh.unreadable {
            if before.unreadable.get(key) != Some(revision) {
                self.give_way(key);
            }
        }
        for (key, revision) in &fresh.removed {
            self.settle_removal(key, *revision);
        }
        for (key, old) in before.entries {
            let Some(base) = fresh.base_of_lost(&key, &old) else {
                continue;
            };
            match self.proposals.entry(key) {
                Entry::Vacant(place) => {
                    self.counts.restored += 1;
                    place.insert(Proposal::restored(old.entry, base));
                }
                Entry::Occupied(mut own) => own.get_mut().has_lost(&old.entry),
            }
        }
        for (key, proposal) in &mut self.proposals {
            if !fresh.entries.contains_key(key) {
                proposal.base = fresh.revision(key).unwrap_or(0);
            }
        }
        self.stored = fresh;
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
        if proposal.may_replace(&known.entry, is_as_before) {
            proposal.replace(known.revision);
            return;
        }
        if known.entry.value != proposal.entry.value {
            self.counts.superseded += 1;
        }
        self.proposals.remove(key);
    }

    /// Returns whether an own decision was judged by the contents of its key, and the store does not have it.
    #[must_use]
    pub fn is_judged(&self, key: &AgreedKey) -> bool {
        self.proposals.get(key).is_some_and(Proposal::is_judged)
    }

    /// Gives up the own proposals that the store has no room for, and returns their keys.
    pub fn give_up(&mut self) -> Vec<AgreedKey> {
        if !self.is_synced() {
            return Vec::new();
        }
        let stored = &self.stored;
        let given_up = self.proposals.extract_if(.., |key, _| !stored.has_room(key));
        let given_up: Vec<AgreedKey> = given_up.map(|(key, _)| key).collect();
        self.counts.refused += given_up.len() as u64;
        given_up
    }

    /// Returns the next entry to write, if any. `is_ready`: the parts of this key's proposal are in the store.
    pub fn next_write(&mut self, is_ready: impl Fn(&AgreedKey) -> bool) -> Option<AgreedWrite> {
        if !self.is_synced() {
            return None;
        }
        let stored = &self.stored;
        let mut proposals = self.proposals.iter_mut();
        // Entries that were written since may have taken the room.
        let (key, proposal) = proposals.find(|(key, proposal)| {
            proposal.progress == Progress::Waiting && stored.has_room(key) && is_ready(key)
        })?;
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

    /// Returns whether the store answers: the view has its entries, or they follow.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.link, Link::Away)
    }

    /// Returns the number of times that the store opened.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// Returns the store's entries.
    pub fn entries(&self) -> impl Iterator<Item = (&AgreedKey, &KnownEntry)> {
        self.stored.entries.iter()
    }

    /// Returns the keys without an entry that can be read, each with the revision that the next write replaces.
    pub fn vacant(&self) -> impl Iterator<Item = (&AgreedKey, u64)> {
        let Contents {
            removed, unreadable, ..
        } = &self.stored;
        let all = removed.iter().chain(unreadable);
        all.map(|(key, revision)| (key, *revision))
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
        own.or_else(|| self.stored.entries.get(key).map(|known| &known.entry))
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> AgreementCounts {
        self.counts
    }
}
