//! Report on the live check: the checks of each pool and worker, with their results.

use serde::Serialize;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// Passed.
    Pass,
    /// Passed, with a warning: it works, but may not work well.
    Warn,
    /// Failed.
    Fail,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveCheck {
    /// Stable name.
    pub check: &'static str,
    /// Result.
    pub result: CheckResult,
    /// Finding.
    pub message: String,
    /// Cure, if one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Most characters of a message. Parts of it are from workers.
const LONGEST_MESSAGE: usize = 1_000;

impl LiveCheck {
    pub(crate) fn pass(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            result: CheckResult::Pass,
            message: cut(message.into()),
            hint: None,
        }
    }

    pub(crate) fn warn(check: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            result: CheckResult::Warn,
            hint: Some(hint.into()),
            ..Self::pass(check, message)
        }
    }

    pub(crate) fn fail(check: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            result: CheckResult::Fail,
            ..Self::warn(check, message, hint)
        }
    }
}

fn cut(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Checks of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerReport {
    /// Name of the worker.
    pub worker: String,
    /// Base URL.
    pub url: String,
    /// Configured role.
    pub role: &'static str,
    /// Checks in a fixed order.
    pub checks: Vec<LiveCheck>,
}

/// Checks of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    /// Name of the pool.
    pub pool: String,
    /// Configured dialect.
    pub dialect: Option<&'static str>,
    /// Its workers.
    pub workers: Vec<WorkerReport>,
    /// Checks of its workers together.
    pub checks: Vec<LiveCheck>,
}

/// All checks, and their number by result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveReport {
    /// Pools in the order of the file.
    pub pools: Vec<PoolReport>,
    /// Number of passed checks.
    pub passed: usize,
    /// Number of checks with a warning.
    pub warned: usize,
    /// Number of failed checks.
    pub failed: usize,
}

impl LiveReport {
    pub(crate) fn new(pools: Vec<PoolReport>) -> Self {
        let count = |result| {
            let of_workers = pools
                .iter()
                .flat_map(|pool| &pool.workers)
                .flat_map(|worker| &worker.checks);
            let all = of_workers.chain(pools.iter().flat_map(|pool| &pool.checks));
            all.filter(|check| check.result == result).count()
        };
        Self {
            passed: count(CheckResult::Pass),
            warned: count(CheckResult::Warn),
            failed: count(CheckResult::Fail),
            pools,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let message = |length| LiveCheck::pass("c", "é".repeat(length)).message;
        assert_eq!(message(LONGEST_MESSAGE), "é".repeat(LONGEST_MESSAGE));
        assert_eq!(message(LONGEST_MESSAGE + 1), "é".repeat(LONGEST_MESSAGE) + "…");
    }
}
