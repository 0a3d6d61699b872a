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
