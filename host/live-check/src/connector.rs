//! Check of a worker's connector against the pool's dialect. Pure.

use routing::{Dialect, Role};

use crate::observed::{Bootstrap, Observed, Page, ShownDialect};
use crate::report::LiveCheck;
use crate::target::{PoolDialect, WorkerTarget};

const CONNECTOR: &str = "connector";

/// Checks the prefill/decode dialect.
pub(crate) fn check(target: &WorkerTarget, observed: &Observed) -> Option<LiveCheck> {
    let role = target.role.as_str();
    if target.dialect == PoolDialect::Absent {
        return None;
    }
    let plays = observed.disaggregation.as_deref().unwrap_or(role);
    let is_other = match plays {
        "null" => target.role != Role::Mixed,
        plays => plays != role,
    };
    if is_other {
        let message =
            format!("is configured as {role}, and the engine runs with --disaggregation-mode {plays}");
        return Some(LiveCheck::fail(
            CONNECTOR,
            message,
            "correct `role` of the worker, or start the engine in that mode",
        ));
    }
    let Some(dialect) = target.dialect.named() else {
        return detected(target, observed);
    };
    let Some(address) = target
        .bootstrap
        .as_deref()
        .filter(|_| target.role == Role::Prefill)
    else {
        let message = format!(
            "{role} ({}); the engine has no page with more details",
            dialect.as_str()
        );
        return Some(LiveCheck::pass(CONNECTOR, message));
    };
    let hint = bootstrap_hint(dialect);
    Some(match observed.bootstrap.as_ref()? {
        Page::Read(Bootstrap::Up) => LiveCheck::pass(
            CONNECTOR,
            format!("{role}; the bootstrap server {address} answers"),
        ),
        Page::Read(Bootstrap::Engines(engines)) if engines.is_empty() => {
            let message = format!("the bootstrap server {address} has no engine yet");
            LiveCheck::fail(
                CONNECTOR,
                message,
                "wait until the engine has started, or read its log",
            )
        }
        Page::Read(Bootstrap::Engines(engines)) => {
            let ids: Vec<String> = engines
                .iter()
                .map(|(rank, id)| format!("rank {rank} is {id}"))
                .collect();
            LiveCheck::pass(
                CONNECTOR,
                format!(
                    "{role}; the bootstrap server {address} reports {}",
                    ids.join(", ")
                ),
            )
        }
        Page::Absent | Page::Unauthorized(_) => LiveCheck::fail(
            CONNECTOR,
            format!("{address} is no bootstrap server of {}", dialect.as_str()),
            hint,
        ),
        Page::Failed(why) => LiveCheck::fail(
            CONNECTOR,
            format!("failed to reach the bootstrap server {address}: {why}"),
            hint,
        ),
    })
}

/// Checks whether the router's detection would find the dialect by a prefill worker's pages.
fn detected(target: &WorkerTarget, observed: &Observed) -> Option<LiveCheck> {
    if target.role != Role::Prefill {
        return None;
    }
    Some(match &observed.shown {
        Some(ShownDialect { dialect, evidence }) => LiveCheck::pass(
            CONNECTOR,
            format!("prefill; {evidence} shows {}", dialect.as_str()),
        ),
        None => LiveCheck::warn(
            CONNECTOR,
            "shows no connector on /server_info, its bootstrap server or /metrics: requests are not split unless an answer shows it",
            "start the engine with its connector, correct `bootstrap` of the worker, or name `dialect` of the pool",
        ),
    })
}

fn bootstrap_hint(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sglang => {
            "correct `bootstrap` of the worker (--disaggregation-bootstrap-port of the engine)"
        }
        _ => {
            "correct `bootstrap` of the worker (VLLM_MOONCAKE_BOOTSTRAP_PORT of the engine), or `dialect` of the pool"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::worker;
    use crate::report::CheckResult;

    #[test]
    fn a_prefill_worker_that_shows_no_connector_is_warned_of_where_the_dialect_is_detected() {
        let result = |role: Role, dialect: PoolDialect, shown: Option<Dialect>| {
            let worker = WorkerTarget {
                role,
                dialect,
                ..worker()
            };
            let observed = Observed {
                shown: shown.map(|dialect| ShownDialect {
                    dialect,
                    evidence: "/server_info".to_owned(),
                }),
                ..Observed::default()
            };
            check(&worker, &observed).map(|check| check.result)
        };
        let (auto, none) = (PoolDialect::Detected, None);
        assert_eq!(result(Role::Prefill, auto, none), Some(CheckResult::Warn));
        assert_eq!(
            result(Role::Prefill, auto, Some(Dialect::Nixl)),
            Some(CheckResult::Pass)
        );
        assert_eq!(result(Role::Decode, auto, none), None);
        assert_eq!(result(Role::Mixed, PoolDialect::Absent, none), None);
    }
}
