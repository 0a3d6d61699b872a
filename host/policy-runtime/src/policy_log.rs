//! Log lines of a policy: rate-limited, truncated, and one line each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bindings::host::Level;
use crate::text::one_line;

/// Log lines per second over all instances of a policy.
const LINES_PER_SECOND: u32 = 10;
/// Longest line, in bytes.
const MAX_LINE: usize = 1024;

/// Log target of these lines.
const TARGET: &str = "policy";

/// The log of one policy.
#[derive(Debug)]
pub(crate) struct PolicyLog {
    policy: Arc<str>,
    /// Start of the current second, and the lines since then.
    second: Mutex<(Instant, u32)>,
    dropped: AtomicU64,
}

impl PolicyLog {
    pub(crate) fn new(policy: Arc<str>) -> Self {
        Self {
            policy,
            second: Mutex::new((Instant::now(), 0)),
            dropped: AtomicU64::new(0),
        }
    }

    /// Writes a line, or counts it as dropped.
    pub(crate) fn write(&self, level: Level, message: &str) {
        if !self.admit(Instant::now()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let policy = &*self.policy;
        let line = one_line(message, MAX_LINE);
        match level {
            Level::Debug => tracing::debug!(target: TARGET, policy, "{line}"),
            Level::Info => tracing::info!(target: TARGET, policy, "{line}"),
            Level::Warn => tracing::warn!(target: TARGET, policy, "{line}"),
            Level::Error => tracing::error!(target: TARGET, policy, "{line}"),
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn admit(&self, now: Instant) -> bool {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(second.0) >= Duration::from_secs(1) {
            *second = (now, 0);
        }
        second.1 = second.1.saturating_add(1);
        second.1 <= LINES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_admitted() {
        let log = PolicyLog::new("p".into());
        let start = Instant::now();
        let admitted = (0..30).filter(|_| log.admit(start)).count();
        assert_eq!(admitted, 10);
        assert!(log.admit(start + Duration::from_secs(2)));
    }
}
