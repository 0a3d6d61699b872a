//! Pace of the exchange: the time between two looks at the own gauges.
//!
//! A look costs the wake-up of a thread, whether it finds a change or not. Where requests are held, freed capacity goes
//! from router to router, and each look's delay is a delay of requests. Elsewhere the figures only balance.

use std::time::Duration;

use tokio::time::Instant;

/// Time without a change after which the gauges are looked at least often.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// Time between two looks while no gauge changes, as a multiple of that while requests are held.
const IDLE_FACTOR: u32 = 10;
/// Maximum time between two looks while no gauge changes, unless that while they change is longer: all gauges are
/// repeated each second.
const MOST_IDLE: Duration = Duration::from_secs(1);
/// The same while gauges change, and no router holds a request.
const CALM_FACTOR: u32 = 2;

/// Facts that the pace follows.
#[derive(Debug)]
pub(crate) struct SharePace {
    /// Time of the last change of a gauge.
    pub(crate) changed_at: Instant,
    /// Set while this router holds requests.
    pub(crate) holds_here: bool,
    /// Set while another router holds requests.
    pub(crate) holds_elsewhere: bool,
}

impl SharePace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            changed_at: now,
            holds_here: false,
            holds_elsewhere: false,
        }
    }

    /// Returns the time until the gauges are looked at again, where `every` is the shortest.
    pub(crate) fn pause(&self, every: Duration) -> Duration {
        if self.changed_at.elapsed() > IDLE_AFTER {
            (every * IDLE_FACTOR).min(MOST_IDLE.max(every * CALM_FACTOR))
        } else if self.holds_here || self.holds_elsewhere {
            every
        } else {
            every * CALM_FACTOR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(5);

    #[tokio::test(start_paused = true)]
    async fn the_gauges_are_looked_at_most_often_while_a_router_holds_requests() {
        let mut pace = SharePace::new(Instant::now());
        assert_eq!(pace.pause(EVERY), EVERY * CALM_FACTOR);
        pace.holds_elsewhere = true;
        assert_eq!(pace.pause(EVERY), EVERY);
        (pace.holds_here, pace.holds_elsewhere) = (true, false);
        assert_eq!(pace.pause(EVERY), EVERY);
        tokio::time::advance(2 * IDLE_AFTER).await;
        assert_eq!(pace.pause(EVERY), EVERY * IDLE_FACTOR);
        for (every_ms, pause_ms) in [(100, 1_000), (400, 1_000), (1_000, 2_000)] {
            let pause = pace.pause(Duration::from_millis(every_ms));
            assert_eq!(pause, Duration::from_millis(pause_ms));
        }
    }
}
