//! Counters of a policy.

use std::sync::atomic::{AtomicU64, Ordering};

use routing::FaultKind;

/// Snapshot of a policy's counters since its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyStats {
    /// Requested decisions.
    pub calls: u64,
    /// Instances created: one per deciding thread, and one after each fault.
    pub instances: u64,
    /// Log lines dropped because the policy wrote too many.
    pub log_lines_dropped: u64,
    faults: [u64; FaultKind::ALL.len()],
}

impl PolicyStats {
    /// Returns the number of failed decisions of one kind. Invalid answers that only the router detects (a row that
    /// was not offered) are not included.
    #[must_use]
    pub fn faults(&self, kind: FaultKind) -> u64 {
        position(kind).map_or(0, |position| self.faults[position])
    }
}

/// Relaxed counters: each is exact, but together they may be of different moments.
#[derive(Debug, Default)]
pub(crate) struct PolicyCounters {
    instances: AtomicU64,
    faults: [AtomicU64; FaultKind::ALL.len()],
}

impl PolicyCounters {
    pub(crate) fn count_instance(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_fault(&self, kind: FaultKind) {
        if let Some(position) = position(kind) {
            self.faults[position].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self, calls: u64, log_lines_dropped: u64) -> PolicyStats {
        PolicyStats {
            calls,
            instances: self.instances.load(Ordering::Relaxed),
            log_lines_dropped,
            faults: std::array::from_fn(|position| self.faults[position].load(Ordering::Relaxed)),
        }
    }
}

fn position(kind: FaultKind) -> Option<usize> {
    FaultKind::ALL.iter().position(|&known| known == kind)
}
