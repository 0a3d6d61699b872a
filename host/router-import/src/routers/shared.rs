//! Flags that vllm-router and sglang-router share, since one began as the other.

use routing::Role;

use crate::rule::{Effect, FlagRule, KeyPlace, many, one, switch};

/// Table of the health of workers.
const HEALTH: &str = "pools.main.health";

/// Limits of a request's time. A response that is not streamed has its head at its end.
const REQUEST_TIMES: &[KeyPlace] = &[
    ("server", "request-timeout"),
    ("server", "first-byte-timeout"),
    ("server", "idle-timeout"),
];

/// The flags.
pub(super) const RULES: &[FlagRule] = &[
    many("--worker-urls", Effect::Workers(Role::Mixed)),
    many("--prefill", Effect::Bootstrapped(Role::Prefill)),
    many("--decode", Effect::Workers(Role::Decode)),
    one("--host", Effect::Host),
    one("--port", Effect::Port),
    one("--prometheus-port", Effect::AdminPort),
    one(
        "--prometheus-host",
        Effect::Absent("set the address of `admin-listen` of [server]"),
    ),
    one("--request-timeout-secs", Effect::Times(REQUEST_TIMES, "s")),
    one("--retry-max-retries", Effect::Attempts(("server", "attempts"))),
    one(
        "--retry-initial-backoff-ms",
        Effect::Time(("pools.main.retries", "backoff"), "ms"),
    ),
    one(
        "--retry-max-backoff-ms",
        Effect::Time(("pools.main.retries", "longest-backoff"), "ms"),
    ),
    one(
        "--retry-backoff-multiplier",
        Effect::Needless("[pools.main.retries] has a first and a longest backoff"),
    ),
    one(
        "--retry-jitter-factor",
        Effect::Needless("backoffs are random here"),
    ),
    switch("--disable-retries", Effect::Fixed(("server", "attempts"), "1")),
    one("--cb-failure-threshold", Effect::Number((HEALTH, "failures"))),
    one(
        "--cb-window-duration-secs",
        Effect::Time((HEALTH, "failure-window"), "s"),
    ),
    one(
        "--cb-timeout-duration-secs",
        Effect::Time((HEALTH, "base-ejection-time"), "s"),
    ),
    one(
        "--cb-success-threshold",
        Effect::NumberAfter((HEALTH, "healthy-after"), "--health-success-threshold"),
    ),
    switch(
        "--disable-circuit-breaker",
        Effect::Absent("raise `failures` of [pools.main.health]"),
    ),
    one("--health-check-endpoint", Effect::Text((HEALTH, "path"))),
    one(
        "--health-check-interval-secs",
        Effect::Time((HEALTH, "interval"), "s"),
    ),
    one(
        "--health-check-timeout-secs",
        Effect::Time((HEALTH, "timeout"), "s"),
    ),
    one(
        "--health-failure-threshold",
        Effect::Number((HEALTH, "unhealthy-after")),
    ),
    one(
        "--health-success-threshold",
        Effect::Number((HEALTH, "healthy-after")),
    ),
    switch(
        "--disable-health-check",
        Effect::Fixed((HEALTH, "path"), "\"off\""),
    ),
    one(
        "--max-concurrent-requests",
        Effect::Number(("pools.main.admission", "requests")),
    ),
    one("--queue-size", Effect::Number(("pools.main", "queue-limit"))),
    one(
        "--queue-timeout-secs",
        Effect::Time(("pools.main", "queue-timeout"), "s"),
    ),
    one(
        "--rate-limit-tokens-per-second",
        Effect::Absent("limit each client by `requests-per-minute` of [clients.NAME]"),
    ),
    one(
        "--max-payload-size",
        Effect::Size(("server", "request-body-limit"), "B"),
    ),
    one("--api-key", Effect::EngineKey),
    many("--cors-allowed-origins", Effect::List(("server.cors", "origins"))),
    switch(
        "--service-discovery",
        Effect::Needless("the selectors make a [discovery.NAME]"),
    ),
    many("--selector", Effect::Selector(None)),
    many("--prefill-selector", Effect::Selector(Some(Role::Prefill))),
    many("--decode-selector", Effect::Selector(Some(Role::Decode))),
    one("--service-discovery-namespace", Effect::Namespace),
    one("--service-discovery-port", Effect::WorkerPort),
    many("--request-id-headers", Effect::Needless("it is `x-request-id`")),
    one("--log-level", Effect::LogLevel),
    one(
        "--log-dir",
        Effect::Absent("the log is on the standard error: let the service manager store it"),
    ),
    switch("--enable-igw", Effect::Needless("a pool may hold several models")),
    one(
        "--cache-threshold",
        Effect::Absent("set `params` of a policy with `builtin` = `sglang-cache-aware`"),
    ),
    one(
        "--balance-abs-threshold",
        Effect::Absent("set `params` of a policy with `builtin` = `sglang-cache-aware`"),
    ),
    one(
        "--balance-rel-threshold",
        Effect::Absent("set `params` of a policy with `builtin` = `sglang-cache-aware`"),
    ),
    one(
        "--max-tree-size",
        Effect::Absent("set `max-blocks` of [index], which counts blocks"),
    ),
    one(
        "--eviction-interval-secs",
        Effect::Needless("the index is bounded by `max-blocks`"),
    ),
    one(
        "--worker-startup-timeout-secs",
        Effect::Needless("workers are pending until they answer"),
    ),
    one(
        "--worker-startup-check-interval",
        Effect::Needless("workers are pending until they answer"),
    ),
];
