//! How much memory the process has, of how much it may have, and what is shed before the kernel ends the process.
//!
//! `stage.rs` says from which share of the limit on what is shed; `resident.rs` reads what the process has; `relief.rs` looks at
//! intervals and sheds. A request costs one relaxed load.

mod relief;
mod resident;
mod stage;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

pub(crate) use self::relief::keep_watch;
use self::resident::resident;
pub use self::stage::MemoryStage;
use self::stage::next;

/// What is known of the process' memory. It outlives snapshots.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By its discriminant.
    stage: AtomicU8,
    /// In bytes; 0: none.
    limit: AtomicU64,
    changes: AtomicU64,
}

/// The process' memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReport {
    /// What is shed.
    pub stage: MemoryStage,
    /// In bytes; none where the system does not tell.
    pub resident: Option<u64>,
    /// In bytes; none: without limit.
    pub limit: Option<u64>,
    /// How often the stage has changed.
    pub changes: u64,
}

/// Another stage than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    was: MemoryStage,
    is: MemoryStage,
}

impl Memory {
    /// Applies a limit from the next look on.
    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> MemoryStage {
        MemoryStage::of(self.stage.load(Ordering::Relaxed))
    }

    /// Whether no more is taken on.
    pub(crate) fn refuses(&self) -> bool {
        self.stage() >= MemoryStage::Refusing
    }

    pub(crate) fn report(&self) -> MemoryReport {
        MemoryReport {
            stage: self.stage(),
            resident: resident(),
            limit: self.limit(),
            changes: self.changes.load(Ordering::Relaxed),
        }
    }

    fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// Takes a reading; without one, or without a limit, nothing is shed.
    fn look(&self, resident: Option<u64>) -> Option<Change> {
        let was = self.stage();
        let is = match (resident, self.limit()) {
            (Some(resident), Some(limit)) => next(was, resident, limit),
            _ => MemoryStage::Calm,
        };
        if was == is {
            return None;
        }
        self.stage.store(is as u8, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        Some(Change { was, is })
    }
}

#[cfg(test)]
impl Memory {
    /// As a reading of so many percent of a limit leaves it.
    pub(crate) fn at(percent: u64) -> Self {
        let memory = Self::default();
        memory.set_limit(Some(100));
        memory.look(Some(percent));
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_or_a_reading_nothing_is_shed() {
        let memory = Memory::default();
        assert_eq!(memory.look(Some(u64::MAX)), None);
        memory.set_limit(Some(10));
        assert_eq!(memory.look(None), None);
        assert!(memory.look(Some(10)).is_some());
        assert!(memory.refuses());
        memory.set_limit(None);
        memory.look(Some(10));
        assert!(!memory.refuses());
        assert_eq!(memory.report().changes, 2);
    }
}
