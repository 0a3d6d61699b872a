//! Report on a source, for the admin page.

use serde::Serialize;
use worker_discovery::EntryFault;

/// State of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceStatus {
    /// No query has ended yet.
    Waiting,
    /// The last query succeeded.
    Current,
    /// The last query failed; the workers are those of an earlier answer.
    Failing,
}

/// Source with its state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceReport {
    /// Name in the configuration.
    pub source: String,
    /// Pool of its workers.
    pub pool: String,
    /// Kind, as its key in the configuration.
    pub kind: &'static str,
    /// Place of its answers, without a key.
    pub place: String,
    /// State.
    pub state: SourceStatus,
    /// Number of accepted workers.
    pub workers: usize,
    /// Number of accepted workers that the last answer missed.
    pub doubted: usize,
    /// Unix time of the last good answer.
    pub last_success: Option<f64>,
    /// Error of the last query.
    pub error: Option<String>,
    /// Entries of the last good answer that cannot be used.
    pub bad_entries: BadEntries,
}

/// Entries that cannot be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BadEntries {
    /// Number of them.
    pub count: usize,
    /// The first of them.
    pub first: Vec<EntryFault>,
}
