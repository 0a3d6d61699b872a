//! What a policy did so far, as counters.

use std::sync::atomic::{AtomicU64, Ordering};

use routing::FaultKind;

/// A reading of a policy's counters, from its load on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyStats {
    /// Decisions asked for.
    pub calls: u64,
    /// Instances made for them: one for each thread that decided, and one after each fault.
    pub instances: u64,
    /// Log lines dropped because the policy wrote too many.
    pub log_lines_dropped: u64,
    faults: [u64; FaultKind::ALL.len()],
}

impl PolicyStats {
    /// Failed decisions of one kind. Answers that the router itself finds nonsense (a row that was not offered)
    /// are not known here.
    #[must_use]
    pub fn faults(&self, kind: FaultKind) -> u64 {
        position(kind).map_or(0, |position| self.faults[position])
    }
}

/// Relaxed counters: each is exact, together they may mix two moments.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    instances: AtomicU64,
    faults: [AtomicU64; FaultKind::ALL.len()],
}

impl Counters {
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
