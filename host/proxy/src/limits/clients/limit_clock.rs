//! Clock of the limits, and the number of routers that share them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Clock of the limits of all clients. It is kept over reloads.
#[derive(Debug, Clone)]
pub(super) struct LimitClock {
    pub(super) epoch: Instant,
    /// Number of routers by which limits are divided: 1, unless the others are lost.
    routers: Arc<AtomicU32>,
}

impl Default for LimitClock {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            routers: Arc::new(AtomicU32::new(1)),
        }
    }
}

impl LimitClock {
    /// Returns the time since the epoch in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the number of routers by which limits are divided.
    pub(super) fn routers(&self) -> NonZeroU32 {
        NonZeroU32::new(self.routers.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// Divides the limits by so many routers.
    pub(super) fn divide(&self, routers: NonZeroU32) {
        self.routers.store(routers.get(), Ordering::Relaxed);
    }
}
