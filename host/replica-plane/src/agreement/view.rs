//! Snapshot of the agreed entries, for the rest of the router.

use std::collections::BTreeMap;

use agreement::{AgreedEntry, AgreedKey, Judged, MOST_ENTRIES, RouterStates};

/// Entries and states that this router has.
#[derive(Debug, Clone, Default)]
pub struct AgreedView {
    /// Number of the snapshot.
    pub generation: u64,
    /// Set while the store answers and every entry is known.
    pub is_synced: bool,
    /// Set while the store answers: its entries are here, or on their way.
    pub(crate) is_open: bool,
    /// Number of times that the store opened: it may have lost bytes meanwhile.
    pub openings: u64,
    /// Reason for which the store is away.
    pub problem: Option<String>,
    pub(crate) stored: BTreeMap<AgreedKey, ViewEntry>,
    /// Revisions of keys that have no entry, or one that cannot be read.
    pub(crate) vacant: BTreeMap<AgreedKey, u64>,
    pub(crate) proposed: BTreeMap<AgreedKey, AgreedEntry>,
    /// Reasons for which the store refused the bytes of own decisions.
    pub(crate) problems: BTreeMap<AgreedKey, String>,
    /// States of the entries at the routers, by their ids.
    pub states: BTreeMap<String, RouterStates>,
}

/// Entry of the store.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewEntry {
    /// Revision of the store; 0 for a proposal that the store does not have.
    pub revision: u64,
    /// The entry.
    pub entry: AgreedEntry,
}

impl AgreedView {
    /// Returns the entry of the store.
    #[must_use]
    pub fn stored(&self, key: &AgreedKey) -> Option<&ViewEntry> {
        self.stored.get(key)
    }

    /// Returns the revision of a key, that of its removal too; 0 if the store never had it.
    #[must_use]
    pub fn revision(&self, key: &AgreedKey) -> u64 {
        let stored = self.stored.get(key).map(|known| known.revision);
        stored.or_else(|| self.vacant.get(key).copied()).unwrap_or(0)
    }

    /// Returns the contents of a key, by which a decision is judged.
    #[must_use]
    pub fn judged(&self, key: &AgreedKey) -> Judged {
        let stored = self.stored.get(key).map(|known| &known.entry);
        Judged::of(self.revision(key), stored)
    }

    /// Returns whether this router has a decision for the key that the store does not have.
    #[must_use]
    pub fn is_proposed(&self, key: &AgreedKey) -> bool {
        self.proposed.contains_key(key)
    }

    /// Returns the reason for which the store refused the bytes that this router's decision needs.
    #[must_use]
    pub fn refusal(&self, key: &AgreedKey) -> Option<&str> {
        self.problems.get(key).map(String::as_str)
    }

    /// Returns whether the store has room for a decision under this key.
    #[must_use]
    pub fn has_room(&self, key: &AgreedKey) -> bool {
        self.stored.len() < MOST_ENTRIES || self.stored.contains_key(key)
    }

    /// Returns the number of own decisions that the store does not have.
    #[must_use]
    pub fn proposals(&self) -> usize {
        self.proposed.len()
    }

    /// Returns the entries that this router follows: its own proposals, else those of the store.
    pub fn followed(&self) -> impl Iterator<Item = (AgreedKey, ViewEntry)> {
        let proposed = self.proposed.iter().map(|(key, entry)| {
            let entry = entry.clone();
            (key.clone(), ViewEntry { revision: 0, entry })
        });
        let stored = self
            .stored
            .iter()
            .filter(|(key, _)| !self.proposed.contains_key(key));
        proposed.chain(stored.map(|(key, known)| (key.clone(), known.clone())))
    }

    /// Returns the entry that this router follows.
    #[must_use]
    pub fn followed_one(&self, key: &AgreedKey) -> Option<&AgreedEntry> {
        let stored = self.stored.get(key).map(|known| &known.entry);
        self.proposed.get(key).or(stored)
    }
}
