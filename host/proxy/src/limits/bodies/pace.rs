//! Minimum pace of a body in arrival.

use std::time::Duration;

/// Least time that a body may take, however scarce room is.
const LEAST_GRACE: Duration = Duration::from_secs(1);

/// Minimum pace of the body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyPace {
    /// Longest wait for a piece.
    pub(crate) idle: Duration,
    /// Time that a body may take in all...
    pub(crate) grace: Duration,
    /// ...and one second more for each so many bytes that came; 0: no limit.
    pub(crate) rate: u64,
}

/// BodyPace whose only limit is the wait for a piece.
impl From<Duration> for BodyPace {
    fn from(idle: Duration) -> Self {
        Self {
            idle,
            grace: Duration::ZERO,
            rate: 0,
        }
    }
}

impl BodyPace {
    /// Returns the time that a body may take, `pace_factor` times as fast as configured.
    pub(crate) fn grace(&self, pace_factor: u32) -> Duration {
        (self.grace / pace_factor).max(LEAST_GRACE.min(self.grace))
    }

    /// Returns the longest wait for the next piece, where a body must come `pace_factor` times as fast as configured.
    pub(crate) fn patience(&self, came: usize, took: Duration, pace_factor: u32) -> Duration {
        if self.rate == 0 {
            return self.idle;
        }
        let grace = self.grace(pace_factor);
        let earned = Duration::from_secs(came as u64 / self.rate.saturating_mul(pace_factor.into()));
        self.idle.min((grace + earned).saturating_sub(took))
    }
}
