//! Checks of a worker's answers against its configuration. Pure.

use conductor_config::Tokenize;

use crate::connector;
use crate::observed::{
    EndpointProbe, EventEndpoint, Events, ListedModel, Observed, Page, Reached, Tokens, UnreachedCause,
};
use crate::report::LiveCheck;
use crate::target::{TokenMethod, WorkerTarget};

/// Maximum difference in seconds between a worker's clock and ours without a warning.
const MOST_SKEW: f64 = 2.0;
/// Names listed in one message.
const MOST_NAMES: usize = 8;

const KEY_HINT: &str = "set `authorization` of the pool to the workers' key (--api-key of the engine)";
const EVENTS_HINT: &str = "start vLLM or SGLang with --kv-events-config \
    '{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", \"endpoint\": \"tcp://*:5557\", \"replay_endpoint\": \"tcp://*:5558\"}', or set \
    `kv-events` of the worker";

/// Returns every check of a worker; only the first where it cannot be reached.
pub(crate) fn checks(target: &WorkerTarget, observed: &Observed) -> Vec<LiveCheck> {
    let reached = match &observed.reached {
        Some(Ok(reached)) => reached,
        Some(Err(unreached)) => return vec![unreachable(target, &unreached.why, unreached.cause)],
        None => {
            return vec![unreachable(
                target,
                "it was not queried",
                UnreachedCause::Connection,
            )];
        }
    };
    let mut checks = vec![reachable(target, reached)];
    checks.push(models(target, observed.models.as_ref()));
    checks.extend(tokenizer(target, observed.tokens.as_ref()));
    match &observed.events {
        Some(Events::Endpoints(endpoints)) => checks.extend(endpoints.iter().map(publisher)),
        Some(events) => checks.extend(no_publisher(events)),
        None => {}
    }
    checks.extend(connector::check(target, observed));
    checks.push(clock(reached));
    checks.extend(observed.version.as_ref().map(version));
    checks
}

fn unreachable(target: &WorkerTarget, why: &str, cause: UnreachedCause) -> LiveCheck {
    let hint = match cause {
        UnreachedCause::AuthorityCertificate => {
            "the certificate is that of an authority (CA:TRUE): give the engine one with \
            basicConstraints=CA:FALSE"
                .to_owned()
        }
        UnreachedCause::Tls => {
            "correct `ca` or `server-name` of [pools.NAME.tls], or the certificate of the engine".to_owned()
        }
        UnreachedCause::Connection => format!(
            "check that the engine runs, that {} is its address, and that no firewall is between",
            target.url
        ),
    };
    LiveCheck::fail("reachable", format!("failed to {why}"), hint)
}

fn reachable(target: &WorkerTarget, reached: &Reached) -> LiveCheck {
    let Reached { status, took, .. } = *reached;
    let path = &target.health_path;
    let message = format!("{path} answers {status} in {} ms", took.as_millis());
    match status {
        429 => LiveCheck::warn(
            "reachable",
            message,
            "the worker is overloaded: it gets no requests while it reports so",
        ),
        // The server is up but has no such page.
        501 => LiveCheck::pass("reachable", message),
        500.. => LiveCheck::fail(
            "reachable",
            message,
            "the engine is up and unhealthy: read its log",
        ),
        _ => LiveCheck::pass("reachable", message),
    }
}

fn models(target: &WorkerTarget, page: Option<&Page<Vec<ListedModel>>>) -> LiveCheck {
    const CHECK: &str = "models";
    let (Some(page), Some(path)) = (page, &target.served.list_path) else {
        return LiveCheck::pass(CHECK, "not queried (`model-list.path = \"off\"`)");
    };
    let listed = match page {
        Page::Read(listed) => listed,
        Page::Absent => {
            let message = format!("the worker has no page {path}");
            if !target.served.models.is_empty() {
                return LiveCheck::pass(CHECK, format!("{message}; its `models` are configured"));
            }
            let hint = "name `models` of the worker: the router cannot learn them";
            return LiveCheck::warn(CHECK, message, hint);
        }
        Page::Unauthorized(status) => {
            return LiveCheck::fail(CHECK, format!("{path} answers {status}"), KEY_HINT);
        }
        Page::Failed(why) => {
            let message = format!("failed to read {path}: {why}");
            return LiveCheck::fail(
                CHECK,
                message,
                "check that the URL is that of an engine's HTTP server",
            );
        }
    };
    let (adapters, bases): (Vec<&ListedModel>, Vec<&ListedModel>) =
        listed.iter().partition(|model| model.parent.is_some());
    let serves = format!("serves {}", names(bases.iter().map(|model| &*model.id)));
    let configured = target.served.models.iter().chain(&target.served.adapters);
    let absent: Vec<&str> = configured
        .filter(|name| listed.iter().all(|model| model.id != **name))
        .map(String::as_str)
        .collect();
    if !absent.is_empty() {
        let message = format!("does not serve {}; it {serves}", names(absent.into_iter()));
        let hint = "correct `models` or `adapters` of the worker, or start the engine with them (--served-model-name, --lora-modules)";
        return LiveCheck::fail(CHECK, message, hint);
    }
    if listed.is_empty() {
        return LiveCheck::fail(
            CHECK,
            "serves no model",
            "see whether the engine has loaded its model",
        );
    }
    let adapters = match adapters.is_empty() {
        true => String::new(),
        false => format!("; adapters: {}", names(adapters.iter().map(|model| &*model.id))),
    };
    LiveCheck::pass(CHECK, format!("{serves}{adapters}"))
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "no model".to_owned(),
        many if many > MOST_NAMES => format!(
            "{} and {} more",
            names[..MOST_NAMES].join(", "),
            many - MOST_NAMES
        ),
        _ => names.join(", "),
    }
}

const TOKENIZER: &str = "tokenizer";

fn tokenizer(target: &WorkerTarget, tokens: Option<&Tokens>) -> Option<LiveCheck> {
    let tokens = tokens?;
    let own = match &tokens.of_router {
        Some(Err(why)) => {
            let message = format!("the router's tokenizer for `{}` failed to {why}", tokens.model);
            return Some(LiveCheck::fail(
                TOKENIZER,
                message,
                "correct `tokenizer` of [models.NAME]",
            ));
        }
        Some(Ok(own)) => Some(own),
        None => None,
    };
    // The router needs the worker's only where it has none of its own.
    let method = target.tokenizing.of(&tokens.model);
    let needed = own.is_none() && matches!(method, TokenMethod::As(Tokenize::Worker));
    let missing = |message: String, hint: &str| match needed {
        true => LiveCheck::warn(
            TOKENIZER,
            format!("{message}: policies see no cached prefixes of text prompts"),
            hint,
        ),
        false => LiveCheck::pass(TOKENIZER, format!("{message}; the router does not need it")),
    };
    let theirs = match &tokens.of_worker {
        Page::Read(theirs) => theirs,
        Page::Absent => {
            let hint = "name the model's tokenizer in [models.NAME]";
            return Some(missing("the worker has no page /tokenize".to_owned(), hint));
        }
        Page::Unauthorized(status) => return Some(missing(format!("/tokenize answers {status}"), KEY_HINT)),
        Page::Failed(why) => {
            let hint = "name the model's tokenizer in [models.NAME], or read the engine's log";
            return Some(missing(format!("failed to read /tokenize: {why}"), hint));
        }
    };
    let Some(own) = own else {
        let message = format!("/tokenize makes {} tokens of the probe text", theirs.len());
        return Some(LiveCheck::pass(TOKENIZER, message));
    };
    Some(compared_tokens(&tokens.model, own, theirs))
}

/// Compares the tokens of the router and of the worker for the same text.
fn compared_tokens(model: &str, own: &[u32], theirs: &[u32]) -> LiveCheck {
    if own == theirs {
        let message = format!(
            "the router and the worker make the same {} tokens for `{model}`",
            own.len()
        );
        return LiveCheck::pass(TOKENIZER, message);
    }
    let at = own
        .iter()
        .zip(theirs)
        .take_while(|(own, theirs)| own == theirs)
        .count();
    let message = format!(
        "the router and the worker make other tokens for `{model}`: {} and {} of them, other from token {at} on",
        own.len(),
        theirs.len(),
    );
    let hint = "name the tokenizer of the very model that the worker serves in [models.NAME]: with another one no prefix is found";
    LiveCheck::fail(TOKENIZER, message, hint)
}

const KV_EVENTS: &str = "kv-events";

fn no_publisher(events: &Events) -> Option<LiveCheck> {
    Some(match events {
        Events::Off => LiveCheck::pass(KV_EVENTS, "not followed (`kv-events = \"off\"`)"),
        Events::None => LiveCheck::warn(
            KV_EVENTS,
            "publishes none: policies see no cached prefixes there",
            EVENTS_HINT,
        ),
        Events::Failed(why) => LiveCheck::warn(
            KV_EVENTS,
            format!("failed to {why}: policies see no cached prefixes there"),
            "set `kv-events` and `kv-replay` of the worker",
        ),
        Events::Endpoints(_) => return None,
    })
}

fn publisher(found: &EventEndpoint) -> LiveCheck {
    let endpoint = &found.endpoint;
    let probe = match &found.probe {
        EndpointProbe::Tried(probe) => probe,
        EndpointProbe::Failed(why) => {
            let hint = "correct `kv-events` of the worker, or the engine's --kv-events-config";
            return LiveCheck::fail(KV_EVENTS, format!("failed to {why}"), hint);
        }
        EndpointProbe::Bound => {
            return LiveCheck::pass(
                KV_EVENTS,
                format!("{endpoint} is the router's own: the engine connects to it"),
            );
        }
    };
    if !probe.is_connected {
        let hint = "check that the engine binds it on an interface that is reached from here, and that no firewall is between";
        return LiveCheck::fail(KV_EVENTS, format!("failed to subscribe at {endpoint}"), hint);
    }
    match (probe.replays, &found.replay) {
        (Some(true), Some(replay)) => {
            LiveCheck::pass(KV_EVENTS, format!("{endpoint} connects, {replay} replays"))
        }
        (Some(false), Some(replay)) => LiveCheck::warn(
            KV_EVENTS,
            format!("{endpoint} connects, {replay} answers no request for a replay"),
            "check that the engine has `replay_endpoint` in --kv-events-config, and that no firewall is between",
        ),
        _ => LiveCheck::warn(
            KV_EVENTS,
            format!("{endpoint} connects, and nothing replays what was missed"),
            "give the engine a `replay_endpoint` in --kv-events-config: without it a lost message costs all that is known of its cache",
        ),
    }
}

fn clock(reached: &Reached) -> LiveCheck {
    const CHECK: &str = "clock";
    let Some(skew) = reached.skew else {
        return LiveCheck::pass(CHECK, "not known: the answers have no date");
    };
    if skew.abs() <= MOST_SKEW {
        return LiveCheck::pass(CHECK, "agrees with this machine's");
    }
    let side = if skew > 0.0 { "ahead of" } else { "behind" };
    let message = format!("is {:.0} s {side} this machine's", skew.abs());
    LiveCheck::warn(
        CHECK,
        message,
        "synchronise the clocks (NTP): the ages of KV events are measured with both",
    )
}

fn version(page: &Page<String>) -> LiveCheck {
    const CHECK: &str = "version";
    match page {
        Page::Read(version) => LiveCheck::pass(CHECK, version.clone()),
        Page::Absent => LiveCheck::pass(CHECK, "not known: the worker has no page /version"),
        Page::Unauthorized(status) => LiveCheck::warn(CHECK, format!("/version answers {status}"), KEY_HINT),
        Page::Failed(why) => LiveCheck::warn(
            CHECK,
            format!("failed to read /version: {why}"),
            "read the engine's log",
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use conductor_config::KvEvents;
    use routing::Role;
    use worker_client::{Authorization, ConnectionsSpec};

    use super::*;
    use crate::report::CheckResult;
    use crate::target::{EventsTarget, PoolDialect, ProbeAccess, ServedModels, Tokenizing};

    /// Returns a worker of a pool without a dialect.
    pub(crate) fn worker() -> WorkerTarget {
        WorkerTarget {
            name: "w".to_owned(),
            url: "http://a:1".to_owned(),
            role: Role::Mixed,
            dialect: PoolDialect::Absent,
            bootstrap: None,
            health_path: "/health".to_owned(),
            served: ServedModels {
                models: vec![],
                adapters: vec![],
                list_path: None,
            },
            events: EventsTarget {
                events: KvEvents::Auto,
                curve: None,
                discovery: None,
            },
            tokenizing: Tokenizing {
                of_pool: Tokenize::Worker,
                of_models: Arc::default(),
            },
            access: ProbeAccess {
                connections: ConnectionsSpec::default(),
                authorization: Authorization::Drop,
            },
        }
    }

    #[test]
    fn a_worker_without_a_list_of_models_passes_where_they_are_configured() {
        let check = |configured: &[&str]| {
            let mut worker = worker();
            worker.served.list_path = Some("/v1/models".to_owned());
            worker.served.models = configured.iter().map(|&name| name.to_owned()).collect();
            models(&worker, Some(&Page::Absent)).result
        };
        assert_eq!(check(&["m"]), CheckResult::Pass);
        assert_eq!(check(&[]), CheckResult::Warn);
    }

    #[test]
    fn a_worker_whose_certificate_is_refused_gets_advice_on_certificates() {
        let hint = |cause: UnreachedCause| unreachable(&worker(), "connect", cause).hint.unwrap_or_default();
        assert!(hint(UnreachedCause::Tls).contains("`ca`"));
        assert!(hint(UnreachedCause::AuthorityCertificate).contains("CA:FALSE"));
        assert!(hint(UnreachedCause::Connection).contains("firewall"));
    }

    #[test]
    fn equal_tokens_pass_and_missing_ones_are_reported_only_where_they_are_needed() {
        let worker = worker();
        let check = |of_worker: Page<Vec<u32>>, of_router: Option<Vec<u32>>| {
            let observed = Observed {
                reached: Some(Ok(Reached {
                    status: 200,
                    took: Duration::ZERO,
                    skew: None,
                })),
                tokens: Some(Tokens {
                    of_worker,
                    of_router: of_router.map(Ok),
                    model: "m".to_owned(),
                }),
                ..Observed::default()
            };
            let checks = checks(&worker, &observed);
            let mut named = checks.iter().filter(|check| check.check == "tokenizer");
            named.next().expect("a check of the tokenizer").result
        };
        assert_eq!(check(Page::Read(vec![1, 2]), Some(vec![1, 2])), CheckResult::Pass);
        assert_eq!(check(Page::Read(vec![1, 2]), Some(vec![1])), CheckResult::Fail);
        assert_eq!(check(Page::Absent, Some(vec![1])), CheckResult::Pass);
        assert_eq!(check(Page::Absent, None), CheckResult::Warn);
    }
}
