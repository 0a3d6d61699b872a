//! Store of agreed entries: what the agreement needs of a system with revisions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;

use crate::key::AgreedKey;

/// Connection of one router to the store of its fleet.
pub trait AgreedStore: Send + 'static {
    /// Waits for the next event. Dropping the future loses no event.
    fn next(&mut self) -> impl Future<Output = StoreEvent> + Send;

    /// Writes an entry if its key still has the expected revision. Waits for a bounded time.
    fn write(&mut self, write: &AgreedWrite) -> impl Future<Output = WriteOutcome> + Send;

    /// Reads a key: its entry or its removal as an event; `None` if the store has neither. Waits for a bounded time.
    fn read(
        &mut self,
        key: &AgreedKey,
    ) -> impl Future<Output = Result<Option<StoreEvent>, StoreError>> + Send;

    /// Writes a report of this router. The report ends after a day. Waits for a bounded time.
    fn report(
        &mut self,
        key: &ReportKey,
        report: Vec<u8>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Begins to store bytes under their SHA-256.
    fn put_object(&self, sha256: &str, bytes: Arc<Vec<u8>>) -> ObjectWrite;

    /// Begins to read bytes by their SHA-256. The caller checks the hash.
    fn object(&self, sha256: &str) -> ObjectRead;
}

/// Read of bytes, which goes on beside other calls of its store. It returns the bytes, if there are any, within a
/// bounded time.
pub type ObjectRead = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send>>;

/// Write of bytes, which goes on beside other calls of its store. It ends within a bounded time.
pub type ObjectWrite = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Event of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreEvent {
    /// All entries and reports follow, then [`StoreEvent::Synced`], then changes.
    Opened,
    /// An entry.
    Entry {
        /// Key.
        key: AgreedKey,
        /// Revision of the store that wrote it.
        revision: u64,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The entry of a key was removed.
    Removed {
        /// Key.
        key: AgreedKey,
        /// Revision of the store that removed it.
        revision: u64,
    },
    /// A report of a router.
    Report {
        /// Key.
        key: ReportKey,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// All entries up to now were delivered.
    Synced,
    /// The store is away, for this reason. It opens again by itself.
    Lost(String),
    /// The store has ended.
    Closed,
}

/// Key of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportKey {
    /// States of the entries at a router.
    States {
        /// Id of the router.
        router: String,
    },
    /// Evidence of a router on a trial.
    Evidence {
        /// Id of the router.
        router: String,
        /// Identity of the trial.
        trial: String,
    },
}

impl ReportKey {
    /// Returns the id of the router that wrote it.
    #[must_use]
    pub fn router(&self) -> &str {
        match self {
            Self::States { router } | Self::Evidence { router, .. } => router,
        }
    }

    /// Returns the text of the key.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::States { router } => format!("states.{router}"),
            Self::Evidence { router, trial } => format!("evidence.{trial}.{router}"),
        }
    }

    /// Reads the text of a key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex =
            |text: &str| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts: Vec<&str> = text.split('.').collect();
        match parts[..] {
            ["states", router] if is_hex(router) => Some(Self::States {
                router: router.to_owned(),
            }),
            ["evidence", trial, router] if is_hex(trial) && is_hex(router) => Some(Self::Evidence {
                router: router.to_owned(),
                trial: trial.to_owned(),
            }),
            _ => None,
        }
    }
}

/// Entry to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgreedWrite {
    /// Key.
    pub key: AgreedKey,
    /// Bytes of the entry.
    pub bytes: Vec<u8>,
    /// Revision that the key must have; 0 for a key without an entry.
    pub expected: u64,
    /// Number of the decision.
    pub number: u64,
}

/// Outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The entry has this revision.
    Accepted(u64),
    /// The key has another revision.
    Conflict,
    /// The store did not answer. The entry may have been written.
    Unknown(StoreError),
}

/// Error of a store.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("failed to {doing}: {why}")]
pub struct StoreError {
    /// Attempted action.
    pub doing: &'static str,
    /// Cause.
    pub why: String,
}
