//! Memory limits of an instance, and a record of refused allocations during a call.

use wasmtime::{Error, ResourceLimiter, Result};

/// Function-table entries of an instance; also the size of the engine's table slots. Large guests (an
/// interpreter compiled to WebAssembly) have some thousands.
pub(crate) const TABLE_ELEMENTS: usize = 20_000;
/// Core instances inside one component: a compiled policy has three, componentised Python some dozens.
pub(crate) const CORE_INSTANCES: u32 = 64;
/// Memories inside one component.
pub(crate) const MEMORIES: u32 = 4;
/// Tables inside one component.
pub(crate) const TABLES: u32 = 16;

/// The limits of one store.
#[derive(Debug)]
pub(crate) struct InstanceLimits {
    memory_bytes: usize,
    /// Bytes of all its memories.
    granted: usize,
    /// Bytes of the latest growth, to be subtracted if it fails after all.
    latest: usize,
    refused: bool,
}

impl InstanceLimits {
    pub(crate) fn new(memory_bytes: usize) -> Self {
        Self {
            memory_bytes,
            granted: 0,
            latest: 0,
            refused: false,
        }
    }

    /// Returns the bytes of linear memory of the instance.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// Clears the record of refusals at the start of a call.
    pub(crate) fn begin_call(&mut self) {
        self.refused = false;
    }

    /// Returns `true` if memory or table entries were refused during the call.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }
}

impl ResourceLimiter for InstanceLimits {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let more = desired.saturating_sub(current);
        let total = self.granted.saturating_add(more);
        if total > self.memory_bytes {
            self.refused = true;
            return Ok(false);
        }
        (self.granted, self.latest) = (total, more);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: Error) -> Result<()> {
        self.granted -= self.latest;
        self.latest = 0;
        self.refused = true;
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let allowed = desired <= TABLE_ELEMENTS;
        self.refused |= !allowed;
        Ok(allowed)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_share_one_allowance_and_a_failed_growth_is_given_back() {
        let mut limits = InstanceLimits::new(100);
        assert!(limits.memory_growing(0, 60, None).unwrap());
        assert!(!limits.memory_growing(0, 60, None).unwrap());
        assert!(limits.refused());
        limits.begin_call();
        assert!(limits.memory_growing(60, 100, None).unwrap());
        limits.memory_grow_failed(Error::msg("no pages left")).unwrap();
        assert!(limits.memory_growing(60, 100, None).unwrap());
    }
}
