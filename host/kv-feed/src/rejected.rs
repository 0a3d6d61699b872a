//! Events that were skipped, counted by why.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kv_events::RejectReason;

/// Events skipped as undecodable or not understood, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected(Vec<(&'static str, u64)>);

impl Rejected {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, events)| events).sum()
    }

    /// Each reason that was met, as a metric's label, with its events.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied()
    }
}

/// The live counters; written by one thread.
#[derive(Debug, Default)]
pub(crate) struct RejectCounters([AtomicU64; RejectReason::ALL.len()]);

impl RejectCounters {
    pub(crate) fn add(&self, reason: RejectReason) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Rejected {
        let counts = RejectReason::ALL.iter().zip(&self.0);
        let counts = counts.map(|(reason, events)| (reason.label(), events.load(Relaxed)));
        Rejected(counts.filter(|(_, events)| *events > 0).collect())
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
            counters.add(*reason);
        }
        counters.add(RejectReason::BadHash);
        let read = counters.read();
        assert_eq!(read.total(), RejectReason::ALL.len() as u64 + 1);
        assert!(read.by_reason().any(|met| met == ("bad-hash", 2)));
        assert!(read.by_reason().any(|met| met == ("no-tokens", 1)));
    }
}
