//! Report on the events of a policy, for `/admin/policies`.

use std::collections::BTreeMap;

use serde::Serialize;

/// Events and ticks of a policy.
#[derive(Debug, Clone, Serialize)]
pub struct ListeningReport {
    /// Kinds of events that it receives.
    pub kinds: Vec<&'static str>,
    /// True if it receives ticks.
    pub ticks: bool,
    /// Events that it handled.
    pub delivered: u64,
    /// Events that were dropped, or that it failed at.
    pub dropped: u64,
    /// Events that wait for delivery.
    pub waiting: usize,
    /// Failed calls, by how.
    pub faults: BTreeMap<&'static str, u64>,
    /// State of the circuit for deliveries: `closed`, `open` or `half-open`.
    pub circuit: &'static str,
}
