//! Clock of the policies.

use std::time::Instant;

/// Clock that counts microseconds since the router's start.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventClock {
    started: Instant,
}

impl EventClock {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// Returns the microseconds since the router's start.
    pub(super) fn now_us(self) -> u64 {
        self.started.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
    }
}
