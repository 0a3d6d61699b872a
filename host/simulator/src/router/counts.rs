//! Counters of a router.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use routing::FaultKind;

/// Counts since the beginning of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouterCounts {
    /// Calls of policies.
    pub calls: u64,
    /// Requests, or tries of them, that were sent to workers.
    pub dispatched: u64,
    /// Times that a request was to be held.
    pub held: u64,
    /// Requests refused.
    pub rejected: u64,
    /// Calls that the fallback answered instead, because the policy passed or failed.
    pub fallbacks: u64,
    /// Calls that failed, by [`FaultKind::as_str`].
    pub faults: BTreeMap<&'static str, u64>,
    /// Text of the first of them, with the policy's name.
    pub first_fault: Option<String>,
    /// Calls of policies' event handlers and ticks that failed.
    pub listener_faults: u64,
    /// Cache events that never came.
    pub events_lost: u64,
}

impl RouterCounts {
    pub(super) fn fault(&mut self, kind: FaultKind, policy: &str, detail: &str) {
        *self.faults.entry(kind.as_str()).or_default() += 1;
        self.first_fault
            .get_or_insert_with(|| format!("{policy}: {detail}"));
    }
}

impl AddAssign for RouterCounts {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.dispatched += other.dispatched;
        self.held += other.held;
        self.rejected += other.rejected;
        self.fallbacks += other.fallbacks;
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.first_fault = self.first_fault.take().or(other.first_fault);
        self.listener_faults += other.listener_faults;
        self.events_lost += other.events_lost;
    }
}
