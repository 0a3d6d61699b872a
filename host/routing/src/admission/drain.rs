//! Drain rate of a queue, measured by the requests that leave it for a worker.

/// Weight of the newest interval in the average.
const SHARE: f64 = 1.0 / 8.0;

/// The time between two that leave the queue, while there are more behind them.
#[derive(Debug, Clone, Copy, Default)]
pub struct DrainRate {
    /// Time at which the last request left, while the queue was not empty since.
    last_us: Option<u64>,
    interval_us: Option<f64>,
}

impl DrainRate {
    /// Records that a request left for a worker.
    pub fn left(&mut self, now_us: u64) {
        if let Some(last) = self.last_us.replace(now_us) {
            let took = now_us.saturating_sub(last) as f64;
            let average = self
                .interval_us
                .map_or(took, |before| before + (took - before) * SHARE);
            self.interval_us = Some(average);
        }
    }

    /// Records that the queue is empty: the time to the next request is not one of draining.
    pub fn emptied(&mut self) {
        self.last_us = None;
    }

    /// Returns the microseconds between two requests; none while unknown. It grows while the queue stands still.
    #[must_use]
    pub fn step_us(&self, now_us: u64) -> Option<u64> {
        let standing = self.last_us.map(|last| now_us.saturating_sub(last));
        let interval = self.interval_us? as u64;
        Some(interval.max(standing.unwrap_or(0)))
    }

    /// Returns the microseconds until so many requests have left; none while unknown.
    #[must_use]
    pub fn wait_us(&self, ahead: usize, now_us: u64) -> Option<u64> {
        Some(self.step_us(now_us)?.saturating_mul(ahead as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_that_of_those_ahead_at_the_measured_pace() {
        let mut drain = DrainRate::default();
        drain.left(1_000);
        assert_eq!(drain.wait_us(3, 1_000), None);
        drain.left(3_000);
        assert_eq!(drain.wait_us(3, 3_000), Some(6_000));
        assert_eq!(drain.wait_us(3, 10_000), Some(21_000), "it stands still");
    }

    #[test]
    fn the_time_without_a_queue_is_not_counted() {
        let mut drain = DrainRate::default();
        drain.left(0);
        drain.left(1_000);
        drain.emptied();
        drain.left(1_000_000);
        assert_eq!(drain.step_us(1_000_000), Some(1_000));
        drain.left(1_001_000);
        assert_eq!(drain.step_us(1_001_000), Some(1_000));
    }
}
