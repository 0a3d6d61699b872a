//! Discovered workers that could not be applied.

use std::time::{Duration, Instant};

use worker_discovery::SourceWorkers;

/// Pause before they are tried again: the cause may lie outside of them, such as a missing thread.
pub(super) const RETRY: Duration = Duration::from_secs(60);

/// Workers of the sources that could not be applied.
#[derive(Debug)]
pub(crate) struct RefusedWorkers {
    workers: Vec<SourceWorkers>,
    /// Time of the last try.
    pub(super) tried_at: Instant,
}

impl RefusedWorkers {
    pub(super) fn new(workers: Vec<SourceWorkers>, tried_at: Instant) -> Self {
        Self { workers, tried_at }
    }

    /// Returns `true` if these workers would probably be refused again.
    pub(super) fn covers(&self, workers: &[SourceWorkers], now: Instant) -> bool {
        self.workers == workers && now.saturating_duration_since(self.tried_at) < RETRY
    }
}
