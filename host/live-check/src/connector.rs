//! Check of a worker's connector against the pool's dialect. Pure.

use routing::{Dialect, Role};

use crate::observed::{Bootstrap, Observed, Page, ShownDialect};
use crate::report::{CheckResult, LiveCheck};
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
    let (dialect, address, shows) = match (target.dialect.named(), &observed.shown) {
        (Some(dialect), _) => (dialect, target.bootstrap.as_deref(), role.to_owned()),
        (None, Some(Page::Read(shown))) => {
            let shows = format!("{role}; {} shows {}", shown.evidence, shown.dialect.as_str());
            (shown.dialect, shown.bootstrap.as_deref(), shows)
        }
        (None, shown) => return Some(undetected(shown.as_ref()?)),
    };
    if let Some(address) = address.filter(|_| target.role == Role::Prefill) {
        let answer = observed.bootstrap.as_ref()?;
        let checked = bootstrap(dialect, address, &shows, answer);
        return Some(match engine_bootstrap(target, observed) {
            Some(named) => warn_of_port(&checked, named),
            None => checked,
        });
    }
    let message = match target.dialect {
        PoolDialect::Detected => shows,
        _ => format!(
            "{role} ({}); the engine has no page with more details",
            dialect.as_str()
        ),
    };
    Some(LiveCheck::pass(CONNECTOR, message))
}

/// Checks the answer of a prefill worker's bootstrap server. `shows` is the start of a good message.
fn bootstrap(dialect: Dialect, address: &str, shows: &str, answer: &Page<Bootstrap>) -> LiveCheck {
    let hint = bootstrap_hint(dialect);
    match answer {
        Page::Read(Bootstrap::Up) => LiveCheck::pass(
            CONNECTOR,
            format!("{shows}; the bootstrap server {address} answers"),
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
            let ids = ids.join(", ");
            LiveCheck::pass(
                CONNECTOR,
                format!("{shows}; the bootstrap server {address} reports {ids}"),
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
    }
}

/// Returns the address of the bootstrap server that the engine names, if another one is handed to both legs. Where the
/// dialect is detected, the router takes the engine's port.
fn engine_bootstrap<'o>(target: &WorkerTarget, observed: &'o Observed) -> Option<&'o str> {
    target.dialect.named()?;
    let Some(Page::Read(shown)) = &observed.shown else {
        return None;
    };
    let named = shown.bootstrap.as_deref();
    named.filter(|named| Some(*named) != target.bootstrap.as_deref())
}

/// Adds the address that the engine names to the check of another one. That may be a mapped port.
fn warn_of_port(checked: &LiveCheck, named: &str) -> LiveCheck {
    let message = format!("/server_info names {named}; {}", checked.message);
    let hint = format!("set `bootstrap` of the worker to \"{named}\", or `dialect` of the pool to \"auto\"");
    match checked.result {
        CheckResult::Fail => {
            let other = checked.hint.iter().map(|other| format!("; else {other}"));
            LiveCheck::fail(CONNECTOR, message, hint + &other.collect::<String>())
        }
        CheckResult::Pass | CheckResult::Warn => LiveCheck::warn(CONNECTOR, message, hint),
    }
}

/// Warns of a prefill worker whose pages show no dialect to the router's detection.
fn undetected(shown: &Page<ShownDialect>) -> LiveCheck {
    match shown {
        Page::Unauthorized(status) => LiveCheck::warn(
            CONNECTOR,
            format!(
                "/server_info answers {status}, and no other page shows a connector: requests are not split unless an answer shows it"
            ),
            "set `authorization` of the pool, or name its `dialect`",
        ),
        Page::Failed(why) => LiveCheck::warn(
            CONNECTOR,
            format!(
                "failed to read /server_info: {why}, and no other page shows a connector: requests are not split unless an answer shows it"
            ),
            "read the engine's log, or name `dialect` of the pool",
        ),
        _ => LiveCheck::warn(
            CONNECTOR,
            "shows no connector on /server_info, its bootstrap server or /metrics: requests are not split unless an answer shows it",
            "start the engine with its connector, correct `bootstrap` of the worker, or name `dialect` of the pool",
        ),
    }
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

    #[test]
    fn a_prefill_worker_that_shows_no_connector_is_warned_of_where_the_dialect_is_detected() {
        let result = |role: Role, dialect: PoolDialect, shown: Option<Page<ShownDialect>>| {
            let worker = WorkerTarget {
                role,
                dialect,
                ..worker()
            };
            let observed = Observed {
                shown,
                ..Observed::default()
            };
            check(&worker, &observed).map(|check| check.result)
        };
        let nixl = Page::Read(ShownDialect {
            dialect: Dialect::Nixl,
            evidence: "/metrics".to_owned(),
            bootstrap: None,
        });
        let auto = PoolDialect::Detected;
        assert_eq!(
            result(Role::Prefill, auto, Some(Page::Absent)),
            Some(CheckResult::Warn)
        );
        assert_eq!(result(Role::Prefill, auto, Some(nixl)), Some(CheckResult::Pass));
        assert_eq!(result(Role::Decode, auto, None), None);
        assert_eq!(result(Role::Mixed, PoolDialect::Absent, None), None);
    }

    #[test]
    fn a_configured_bootstrap_port_that_the_engine_does_not_name_is_warned_of() {
        let check = |named: &str, answer: Page<Bootstrap>| {
            let target = WorkerTarget {
                role: Role::Prefill,
                dialect: PoolDialect::Named(Dialect::Sglang),
                bootstrap: Some("http://a:8998".to_owned()),
                ..worker()
            };
            let observed = Observed {
                shown: Some(Page::Read(ShownDialect {
                    dialect: Dialect::Sglang,
                    evidence: "/server_info".to_owned(),
                    bootstrap: Some(named.to_owned()),
                })),
                bootstrap: Some(answer),
                ..Observed::default()
            };
            check(&target, &observed).unwrap()
        };
        let up = || Page::Read(Bootstrap::Up);
        let failed = || Page::Failed("no connection".to_owned());
        assert_eq!(check("http://a:8998", up()).result, CheckResult::Pass);
        let results = [up(), failed()].map(|answer| {
            let checked = check("http://a:8997", answer);
            let hint = checked.hint.unwrap();
            assert!(hint.contains("http://a:8997"), "{hint}");
            let has_other = hint.contains("--disaggregation-bootstrap-port");
            assert_eq!(has_other, checked.result == CheckResult::Fail, "{hint}");
            checked.result
        });
        assert_eq!(results, [CheckResult::Warn, CheckResult::Fail]);
    }

    #[test]
    fn a_page_that_failed_is_not_called_one_without_a_connector() {
        let failed = undetected(&Page::Failed("the worker answered 503".to_owned()));
        assert_eq!(failed.result, CheckResult::Warn);
        assert!(
            failed
                .message
                .contains("failed to read /server_info: the worker answered 503"),
            "{}",
            failed.message
        );
    }
}
