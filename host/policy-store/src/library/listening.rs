//! What a policy was told of events, for `/admin/policies`.

use std::collections::BTreeMap;

use serde::Serialize;

/// A policy that is told events or ticks.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListeningReport {
    /// The kinds of events it wants.
    pub kinds: Vec<&'static str>,
    /// Whether it works by the clock.
    pub ticks: bool,
    /// Events it has handled.
    pub delivered: u64,
    /// Events it was not told, or failed at.
    pub dropped: u64,
    /// Events that wait to be told.
    pub waiting: usize,
    /// Failed calls, by how.
    pub faults: BTreeMap<&'static str, u64>,
    /// `closed`, `open` or `half-open`: whether it is told any.
    pub circuit: &'static str,
}
