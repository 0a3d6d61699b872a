//! Flags of the router of vLLM's production stack.

use routing::Role;

use crate::rule::{Effect, FlagRule, one, switch};

/// Host and port that it listens on by default.
pub(super) const LISTEN: (&str, u16) = ("0.0.0.0", 8001);
/// Its routing logics.
const LOGICS: &[(&str, &str)] = &[
    ("roundrobin", "round-robin"),
    ("session", "session-affinity"),
    ("prefixaware", "ttft-queue"),
    ("kvaware", "ttft-queue"),
    ("disaggregated_prefill", "ttft-queue"),
    ("priority", "ttft-queue"),
];

/// The flags.
pub(super) const RULES: &[FlagRule] = &[
    one("--host", Effect::Host),
    one("--port", Effect::Port),
    one("--static-backends", Effect::Workers(Role::Mixed)),
    one("--static-models", Effect::Models),
    one("--static-aliases", Effect::Absent("set `names` of [models.NAME]")),
    one(
        "--static-model-types",
        Effect::Needless("the endpoint of a request says its kind"),
    ),
    one(
        "--static-model-labels",
        Effect::Absent("set `labels` of each worker, and `role` if they split requests"),
    ),
    one(
        "--prefill-model-labels",
        Effect::Absent("set `role` = `prefill` of those workers"),
    ),
    one(
        "--decode-model-labels",
        Effect::Absent("set `role` = `decode` of those workers"),
    ),
    switch(
        "--static-backend-health-checks",
        Effect::Needless("health checks are on: [pools.main.health]"),
    ),
    one(
        "--service-discovery",
        Effect::Needless("`--static-backends` or a selector say it"),
    ),
    one("--k8s-label-selector", Effect::Selector(None)),
    one("--k8s-namespace", Effect::Namespace),
    one("--k8s-port", Effect::WorkerPort),
    one("--routing-logic", Effect::Policy("policy", LOGICS)),
    one(
        "--session-key",
        Effect::Absent("send the session as `x-session-id`"),
    ),
    one(
        "--engine-stats-interval",
        Effect::Time(("pools.main.scrape", "interval"), "s"),
    ),
    one(
        "--request-stats-window",
        Effect::Needless("rates are computed from the metrics"),
    ),
    switch("--log-stats", Effect::Needless("see /metrics and the dashboard")),
    one(
        "--log-stats-interval",
        Effect::Needless("see /metrics and the dashboard"),
    ),
    one(
        "--dynamic-config-yaml",
        Effect::Needless("conductor.toml is watched"),
    ),
    one(
        "--dynamic-config-json",
        Effect::Needless("conductor.toml is watched"),
    ),
    one(
        "--otel-endpoint",
        Effect::Absent("set `endpoint` of [traces], over HTTP (port 4318)"),
    ),
    one("--log-level", Effect::LogLevel),
    one("--api-key", Effect::EngineKey),
    one("--callbacks", Effect::Absent("put a proxy in front for it")),
    one(
        "--request-rewriter",
        Effect::Absent("requests are forwarded byte for byte; put a proxy in front"),
    ),
    switch(
        "--enable-batch-api",
        Effect::Absent("batches go to the engine's own API"),
    ),
    one(
        "--sentry-dsn",
        Effect::Absent("send the log (`format` = `json`) to it"),
    ),
    one(
        "--sentry-traces-sample-rate",
        Effect::Absent("set `sample` of [traces]"),
    ),
];
