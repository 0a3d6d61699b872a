//! Memory monitor of the process: stages of load shedding before the kernel ends it (memory pressure).
//! Early rejection by predicted TTFT is in `limits/admission/early_rejection.rs`.
//!
//! `stage.rs` maps shares of the limit to stages; `resident.rs` reads the resident memory; `relief.rs` checks it
//! periodically and sheds load through the holders of memory. A request costs one relaxed load.

mod relief;
mod resident;
mod stage;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

pub(crate) use self::relief::{MemoryRelief, keep_watch};
use self::resident::resident;
pub use self::stage::MemoryStage;
use self::stage::next;

/// Memory state of the process. It outlives snapshots.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Stage by its discriminant.
    stage: AtomicU8,
    /// Limit in bytes; 0 means none.
    limit: AtomicU64,
    changes: AtomicU64,
}

/// Memory of the process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReport {
    /// Current stage of load shedding.
    pub stage: MemoryStage,
    /// Resident memory in bytes; `None` if the system does not report it.
    pub resident: Option<u64>,
    /// Limit in bytes; `None` means unlimited.
    pub limit: Option<u64>,
    /// Number of changes of the stage.
    pub changes: u64,
}

/// Change of the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    was: MemoryStage,
    is: MemoryStage,
}

impl Memory {
    /// Sets the limit, from the next check on.
    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> MemoryStage {
        MemoryStage::of(self.stage.load(Ordering::Relaxed))
    }

    /// Returns `true` if new work is refused.
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

    /// Applies a reading. Without a reading or a limit, nothing is shed.
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
    /// Creates the state after a reading of this percentage of a limit.
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
