//! Log of warnings: each at first, then at most once a minute while its count grows, and once when it is cured. Pure:
//! the time comes in.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::warning::Warning;

/// Minimum time between two lines of one cause of one pool.
const PERIOD: Duration = Duration::from_secs(60);
/// Target of the log lines.
const LOG_TARGET: &str = "conductor::knowledge::log";

/// Logged warnings that are not forgotten.
#[derive(Debug, Default)]
pub(super) struct WarningLog(HashMap<(Box<str>, &'static str), Logged>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    count: u64,
    is_active: bool,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Additional failures since the last line.
    Missing {
        pool: Box<str>,
        warning: Warning,
        more: u64,
    },
    /// The knowledge is complete again.
    Cured { pool: Box<str>, cause: &'static str },
}

impl WarningLog {
    /// Compares the warnings of all pools with what was logged.
    pub(super) fn look<'a>(
        &mut self,
        pools: impl Iterator<Item = (&'a str, &'a Vec<Warning>)>,
        now: Instant,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        for logged in self.0.values_mut() {
            logged.is_active = false;
        }
        for (pool, warnings) in pools {
            for warning in warnings {
                let key = (pool.into(), warning.cause);
                let before = self.0.get_mut(&key);
                let (seen, is_due) = match &before {
                    None => (0, true),
                    Some(before) => {
                        let is_over = now.saturating_duration_since(before.at) >= PERIOD;
                        (before.count, is_over && warning.count != before.count)
                    }
                };
                if is_due {
                    let more = warning.count.saturating_sub(seen);
                    let warning = warning.clone();
                    lines.push(Line::Missing {
                        pool: pool.into(),
                        warning,
                        more,
                    });
                    let count = lines.last().map_or(0, Line::count);
                    self.0.insert(
                        key,
                        Logged {
                            at: now,
                            count,
                            is_active: true,
                        },
                    );
                } else if let Some(before) = before {
                    before.is_active = true;
                }
            }
        }
        self.0.retain(|(pool, cause), logged| {
            // A warning that comes and goes is logged again after the period only.
            let is_kept = logged.is_active || now.saturating_duration_since(logged.at) < PERIOD;
            if !is_kept {
                let pool = pool.clone();
                lines.push(Line::Cured { pool, cause });
            }
            is_kept
        });
        lines
    }
}

impl Line {
    fn count(&self) -> u64 {
        match self {
            Self::Missing { warning, .. } => warning.count,
            Self::Cured { .. } => 0,
        }
    }

    /// Writes it.
    pub(super) fn write(&self) {
        match self {
            Self::Missing { pool, warning, more } => warn!(
                target: LOG_TARGET,
                pool = &**pool,
                cause = warning.cause,
                count = warning.count,
                more_since_last_line = more,
                fix = warning.fix,
                "{}",
                warning.message
            ),
            Self::Cured { pool, cause } => info!(
                target: LOG_TARGET,
                pool = &**pool,
                cause, "the cache knowledge that was missing is there again"
            ),
        }
    }
}
