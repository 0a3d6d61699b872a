//! Settings of the exchange, and the times that follow from them.

use std::time::Duration;

use replicas::SuccessionSpec;

use crate::exchange::millis;

/// Shortest time between two messages with usage, as a multiple of that between two with gauges.
const USAGE_FACTOR: u32 = 10;
/// Silence after which a router is removed, as a multiple of the silence after which its loads fade.
const FORGET_FACTOR: u32 = 6;
/// Silence after which a router is removed, at least. Where the bus hangs, its client notices within 8 s: routers that
/// were removed before would not count among those by which limits are then divided.
const LEAST_FORGET: Duration = Duration::from_secs(9);

/// Settings of the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeSpec {
    /// Name of the fleet.
    pub fleet: String,
    /// Name of this router.
    pub name: String,
    /// Shortest time between two messages with gauges, while requests are held.
    pub share_every: Duration,
    /// Silence after which another router's loads fade.
    pub dead_after: Duration,
}

impl ExchangeSpec {
    /// Returns the silence after which a router is removed.
    #[must_use]
    pub fn forget_after(&self) -> Duration {
        LEAST_FORGET.max(self.dead_after * FORGET_FACTOR)
    }

    /// Returns the shortest time between two messages with usage.
    pub(crate) fn usage_every(&self) -> Duration {
        self.share_every * USAGE_FACTOR
    }

    /// Returns the time after which the others' messages have the usage that this router had before.
    #[must_use]
    pub fn usage_answered_after(&self) -> Duration {
        2 * (self.usage_every() + self.dead_after)
    }

    /// Returns the times beyond which a message with usage does not follow the one before. One message may be lost.
    pub(crate) fn succession(&self) -> SuccessionSpec {
        SuccessionSpec {
            late_ms: millis(self.dead_after),
            gap_ms: millis(self.usage_answered_after()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_removed_only_after_a_bus_that_hangs_is_left() {
        // Three pings, one each 2 s, and up to 2 s before the first.
        const LEFT_AFTER: Duration = Duration::from_secs(8);
        for dead_after_ms in [1_000, 1_500, 60_000] {
            let dead_after = Duration::from_millis(dead_after_ms);
            let spec = ExchangeSpec {
                fleet: String::new(),
                name: String::new(),
                share_every: Duration::from_millis(5),
                dead_after,
            };
            assert!(spec.forget_after() > LEFT_AFTER);
            assert!(spec.forget_after() >= 6 * dead_after);
        }
    }
}
