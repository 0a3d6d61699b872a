//! Counters of rejected events and closed connections, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kv_events::RejectReason;

use crate::zmtp::Fault;

/// Rejected events, or closed connections, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected(Vec<(&'static str, u64)>);

impl Rejected {
    /// Returns the total.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, events)| events).sum()
    }

    /// Returns each reason that occurred, as a metrics label, with its count.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied()
    }
}

/// Current counters of events; written by one thread.
#[derive(Debug, Default)]
pub(crate) struct RejectCounters([AtomicU64; RejectReason::ALL.len()]);

impl RejectCounters {
    pub(crate) fn add(&self, reason: RejectReason, events: u64) {
        self.0[reason as usize].fetch_add(events, Relaxed);
    }

    pub(crate) fn read(&self) -> Rejected {
        let counts = RejectReason::ALL.iter().zip(&self.0);
        let counts = counts.map(|(reason, events)| (reason.label(), events.load(Relaxed)));
        Rejected(counts.filter(|(_, events)| *events > 0).collect())
    }
}

/// Current counters of closed connections.
#[derive(Debug, Default)]
pub(crate) struct FaultCounters([AtomicU64; Fault::ALL.len()]);

impl FaultCounters {
    pub(crate) fn add(&self, fault: Fault) {
        self.0[fault as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Rejected {
        let counts = Fault::ALL.iter().zip(&self.0);
        let counts = counts.map(|(fault, times)| (fault.label(), times.load(Relaxed)));
        Rejected(counts.filter(|(_, times)| *times > 0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_at_its_own_label() {
        let counters = RejectCounters::default();
        assert_eq!(counters.read(), Rejected::default());
        for (at, reason) in RejectReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
            counters.add(*reason, 1);
        }
        counters.add(RejectReason::BadHash, 1);
        let read = counters.read();
        assert_eq!(read.total(), RejectReason::ALL.len() as u64 + 1);
        assert!(read.by_reason().any(|met| met == ("bad-hash", 2)));
        assert!(read.by_reason().any(|met| met == ("no-tokens", 1)));
    }
    #[test]
    fn each_fault_is_counted_at_its_own_label() {
        let counters = FaultCounters::default();
        for (at, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, at);
            counters.add(fault);
        }
        let labels: Vec<_> = counters.read().by_reason().collect();
        assert_eq!(labels, Fault::ALL.map(|fault| (fault.label(), 1)));
    }
}
