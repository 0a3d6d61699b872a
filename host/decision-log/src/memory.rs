//! Memory budget of all records, in the writer's queue and in the list of latest requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Budget in bytes.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    left: AtomicUsize,
}

/// Share of the budget, released on drop.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    /// Creates a budget.
    pub(crate) fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(bytes),
        })
    }

    /// Takes a share. Returns `None` if the rest is too small.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<MemoryShare> {
        self.left
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .ok()?;
        Some(MemoryShare {
            budget: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_unavailable_until_it_is_released() {
        let budget = MemoryBudget::of(10);
        let share = budget.take(7).unwrap();
        assert!(budget.take(4).is_none());
        drop(share);
        assert!(budget.take(10).is_some());
    }
}
