//! Check of how a worker hands prompts over: what it shows against what the configuration says. Pure.

use routing::{Dialect, Role};

use super::observed::{Bootstrap, Observed, Page};
use super::report::LiveCheck;
use super::target::{HandOver, WorkerTarget};

const CONNECTOR: &str = "connector";

/// Returns the check of a worker's connector; none where its pool does not split requests.
pub(super) fn check(target: &WorkerTarget, observed: &Observed) -> Option<LiveCheck> {
    if target.hand_over == HandOver::Off {
        return None;
    }
    let role = target.role.as_str();
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
    let Some(connector) = &observed.connector else {
        return Some(undetected(target));
    };
    let dialect = connector.dialect.as_str();
    let bootstrap = connector.bootstrap.as_deref();
    let Some(address) = bootstrap.filter(|_| target.role == Role::Prefill) else {
        let message = match &connector.evidence {
            Some(evidence) => format!("{role} ({dialect}, detected by {evidence})"),
            None => format!("{role} ({dialect}); the engine has no page that says more"),
        };
        return Some(LiveCheck::pass(CONNECTOR, message));
    };
    let role = match &connector.evidence {
        Some(evidence) => format!("{role} ({dialect}, detected by {evidence})"),
        None => role.to_owned(),
    };
    let page = observed.bootstrap.as_ref()?;
    Some(bootstrap_server(connector.dialect, (&role, address), page))
}

/// No page shows the dialect of the worker.
fn undetected(target: &WorkerTarget) -> LiveCheck {
    let role = target.role.as_str();
    if target.role != Role::Prefill {
        let message = format!("{role}; the router reads the dialect off the prefill workers");
        return LiveCheck::pass(CONNECTOR, message);
    }
    let message =
        format!("{role}; no page shows the dialect: the router tries nixl's parameters on a request");
    LiveCheck::warn(
        CONNECTOR,
        message,
        "set `dialect` in `pd` of the pool to what the engines were started with: nixl, mooncake, store or sglang",
    )
}

fn bootstrap_server(dialect: Dialect, (role, address): (&str, &str), page: &Page<Bootstrap>) -> LiveCheck {
    let hint = bootstrap_hint(dialect);
    match page {
        Page::Read(Bootstrap::Up) => LiveCheck::pass(
            CONNECTOR,
            format!("{role}; the bootstrap server {address} answers"),
        ),
        Page::Read(Bootstrap::Engines(engines)) if engines.is_empty() => {
            let message = format!("the bootstrap server {address} knows no engine yet");
            LiveCheck::fail(
                CONNECTOR,
                message,
                "wait until the engine has started, or look into its log",
            )
        }
        Page::Read(Bootstrap::Engines(engines)) => {
            let ids: Vec<String> = engines
                .iter()
                .map(|(rank, id)| format!("rank {rank} is {id}"))
                .collect();
            LiveCheck::pass(
                CONNECTOR,
                format!("{role}; the bootstrap server {address} says {}", ids.join(", ")),
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
