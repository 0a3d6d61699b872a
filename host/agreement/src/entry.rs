//! Agreed entry: a decision with its author, as JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// Most bytes of an entry.
pub const MOST_ENTRY_BYTES: usize = 256 << 10;
/// Version of the format.
const VERSION: u32 = 1;

/// A decision with its author.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AgreedEntry {
    version: u32,
    /// Id of the router that decided.
    pub by: String,
    /// Number of the decision at that router.
    pub number: u64,
    /// Time of the decision in milliseconds since 1970, by the clock of that router.
    pub at_unix_ms: u64,
    /// The decision, as its kind has it.
    pub value: Value,
}

/// Identity of a decision: its router, and its number there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecisionId {
    by: String,
    number: u64,
}

/// Contents of a key by which a decision was judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    revision: u64,
    /// The decision that the store had, if any.
    decision: Option<DecisionId>,
}

impl Judged {
    /// Returns the contents of a key: its revision, or that of its removal, 0 for none, and its entry.
    #[must_use]
    pub fn of(revision: u64, entry: Option<&AgreedEntry>) -> Self {
        let decision = entry.map(AgreedEntry::id);
        Self { revision, decision }
    }

    /// Returns the revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether a key still has these contents. A decision may have another revision in a store that lost its
    /// entries.
    pub(crate) fn is_still(&self, now: &Self) -> bool {
        self.decision == now.decision && (self.decision.is_some() || self.revision == now.revision)
    }

    /// Returns whether an entry is the decision.
    pub(crate) fn is_decision(&self, entry: &AgreedEntry) -> bool {
        self.decision == Some(entry.id())
    }

    /// Returns whether there was no decision.
    pub(crate) fn is_none(&self) -> bool {
        self.decision.is_none()
    }
}

/// Error of an entry that cannot be used.
#[derive(Debug, Error)]
pub enum EntryError {
    /// Too many bytes.
    #[error("the entry has {0} bytes, more than {MOST_ENTRY_BYTES}")]
    TooLong(usize),
    /// Invalid JSON.
    #[error("the entry cannot be read")]
    Json(#[from] serde_json::Error),
    /// Another version of the format.
    #[error("the entry has the version {0}, and this router reads {VERSION}")]
    Version(u32),
}

impl AgreedEntry {
    /// Returns an entry.
    #[must_use]
    pub fn new(by: &str, number: u64, at_unix_ms: u64, value: Value) -> Self {
        Self {
            version: VERSION,
            by: by.to_owned(),
            number,
            at_unix_ms,
            value,
        }
    }

    /// Returns true if both are the same decision of the same router.
    #[must_use]
    pub fn is_same_decision(&self, other: &Self) -> bool {
        self.by == other.by && self.number == other.number
    }

    pub(crate) fn id(&self) -> DecisionId {
        DecisionId {
            by: self.by.clone(),
            number: self.number,
        }
    }

    /// Returns its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() > MOST_ENTRY_BYTES {
            return Err(EntryError::TooLong(bytes.len()));
        }
        let entry: Self = serde_json::from_slice(bytes)?;
        if entry.version != VERSION {
            return Err(EntryError::Version(entry.version));
        }
        Ok(entry)
    }
}
