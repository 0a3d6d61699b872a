//! Report on the live check: the checks of each pool and worker, with their results.

use serde::Serialize;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckResult {
    /// Passed.
    Pass,
    /// Passed, with a warning: it works, but may not work well.
    Warn,
    /// Failed.
    Fail,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LiveCheck {
    /// Stable name.
    pub(super) check: &'static str,
    /// Result.
    pub(super) result: CheckResult,
    /// Finding.
    pub(super) message: String,
    /// Cure, if one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

/// Most characters of a message: workers choose some of them.
const LONGEST_MESSAGE: usize = 1_000;

impl LiveCheck {
    pub(super) fn pass(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            result: CheckResult::Pass,
            message: cut(message.into()),
            hint: None,
        }
    }

    pub(super) fn warn(check: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            result: CheckResult::Warn,
            hint: Some(hint.into()),
            ..Self::pass(check, message)
        }
    }

    pub(super) fn fail(check: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
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

/// The checks of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WorkerReport {
    pub(super) worker: String,
    pub(super) url: String,
    pub(super) role: &'static str,
    pub(super) checks: Vec<LiveCheck>,
}

/// The checks of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PoolReport {
    pub(super) pool: String,
    pub(super) dialect: Option<&'static str>,
    pub(super) workers: Vec<WorkerReport>,
    /// Checks of its workers together.
    pub(super) checks: Vec<LiveCheck>,
}

/// All checks, and how many ended how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LiveReport {
    pub(super) pools: Vec<PoolReport>,
    pub(super) passed: usize,
    pub(super) warned: usize,
    pub(super) failed: usize,
}

impl LiveReport {
    pub(super) fn new(pools: Vec<PoolReport>) -> Self {
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
    fn what_a_worker_says_is_cut_between_characters() {
        let message = |length| LiveCheck::pass("c", "é".repeat(length)).message;
        assert_eq!(message(LONGEST_MESSAGE), "é".repeat(LONGEST_MESSAGE));
        assert_eq!(message(LONGEST_MESSAGE + 1), "é".repeat(LONGEST_MESSAGE) + "…");
    }
}
