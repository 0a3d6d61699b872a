//! Flags of sglang-router, also named smg.

use crate::rule::{Effect, FlagRule, many, one, switch};

/// Host and port that it listens on by default.
pub(super) const LISTEN: (&str, u16) = ("0.0.0.0", 30000);
/// Its policies.
const POLICIES: &[(&str, &str)] = &[
    ("cache_aware", "ttft-queue"),
    ("round_robin", "round-robin"),
    ("random", "random"),
    ("power_of_two", "power-of-two"),
    ("prefix_hash", "prefix-hash"),
    ("consistent_hashing", "consistent-hash-bounded-load"),
    ("manual", "session-affinity"),
];

/// Remedy for flags of its own users and tenants.
const CLIENTS: &str = "add a [clients.NAME] with `key-sha256` for each (`conductor client-key`)";
/// Reason for flags of parsers.
const ENGINE: &str = "the engine does it";
/// Remedy for flags of tokenizers.
const TOKENIZER: &str = "set `tokenizer` and `chat-template` of [models.NAME] to the files";

/// The flags that vllm-router has not.
pub(super) const RULES: &[FlagRule] = &[
    one("--policy", Effect::Policy("policy", POLICIES)),
    one("--prefill-policy", Effect::Policy("prefill-policy", POLICIES)),
    one("--decode-policy", Effect::Policy("decode-policy", POLICIES)),
    switch("--pd-disaggregation", Effect::Split("sglang")),
    one(
        "--assignment-mode",
        Effect::Needless("`session-affinity` knows the session by `x-session-id`"),
    ),
    switch(
        "--dp-aware",
        Effect::Absent("set `data-parallel` = { ranks = N } of each worker"),
    ),
    one("--model-path", Effect::Absent(TOKENIZER)),
    one("--tokenizer-path", Effect::Absent(TOKENIZER)),
    one("--chat-template", Effect::Absent(TOKENIZER)),
    switch(
        "--tokenizer-cache-enable-l0",
        Effect::Needless("the cache is on: `cache` of [tokens]"),
    ),
    switch(
        "--tokenizer-cache-enable-l1",
        Effect::Needless("the cache is on: `cache` of [tokens]"),
    ),
    one(
        "--tokenizer-cache-l0-max-entries",
        Effect::Absent("set `cache` of [tokens], in bytes"),
    ),
    one(
        "--tokenizer-cache-l1-max-memory",
        Effect::Absent("set `cache` of [tokens]"),
    ),
    one("--tls-cert-path", Effect::Text(("server.tls", "cert"))),
    one("--tls-key-path", Effect::Text(("server.tls", "key"))),
    one("--client-cert-path", Effect::Text(("pools.main.tls", "cert"))),
    one("--client-key-path", Effect::Text(("pools.main.tls", "key"))),
    many(
        "--ca-cert-paths",
        Effect::Absent("set `ca` of [pools.main.tls] to one file with all of them"),
    ),
    many(
        "--control-plane-api-keys",
        Effect::Absent("set `admin-api-key` of [server]; there are no roles"),
    ),
    one("--jwt-issuer", Effect::Absent(CLIENTS)),
    one("--jwt-audience", Effect::Absent(CLIENTS)),
    one("--jwt-jwks-uri", Effect::Absent(CLIENTS)),
    many("--tenant-api-key", Effect::Absent(CLIENTS)),
    one("--tenant-rate-limit-config", Effect::Absent(CLIENTS)),
    one(
        "--tenant-header-name",
        Effect::Text(("pools.main.admission", "tenant-header")),
    ),
    switch(
        "--trust-tenant-header",
        Effect::Needless("`tenant-header` is trusted where it is set"),
    ),
    one(
        "--priority-scheduler-config",
        Effect::Absent("set `priority` of [clients.NAME] or of [[routes]]"),
    ),
    many(
        "--model-alias",
        Effect::Absent("set `names` of [models.NAME] and `match` of [[routes]]"),
    ),
    one("--discovery-provider", Effect::Absent("add a [discovery.NAME]")),
    one(
        "--discovery-file",
        Effect::Absent("add a [discovery.NAME] with `file-sd`; the format is Prometheus'"),
    ),
    one(
        "--shutdown-grace-period-secs",
        Effect::Time(("server", "drain-timeout"), "s"),
    ),
    one(
        "--sse-keepalive-secs",
        Effect::Time(("pools.main", "sse-keep-alive"), "s"),
    ),
    one(
        "--header-read-timeout-secs",
        Effect::Time(("server", "head-timeout"), "s"),
    ),
    one(
        "--idle-connection-timeout-secs",
        Effect::Time(("server", "keep-alive-timeout"), "s"),
    ),
    one(
        "--stream-body-stall-timeout-secs",
        Effect::Time(("server", "idle-timeout"), "s"),
    ),
    switch("--enable-trace", Effect::Needless("the table [traces] is enough")),
    one(
        "--otlp-traces-endpoint",
        Effect::Absent("set `endpoint` of [traces], over HTTP (port 4318)"),
    ),
    many(
        "--prometheus-duration-buckets",
        Effect::Absent("set the bounds in [metrics.buckets]"),
    ),
    switch(
        "--upstream-http2",
        Effect::Fixed(("pools.main.connections", "http2"), "true"),
    ),
    one(
        "--upstream-pool-idle-timeout-secs",
        Effect::Time(("pools.main.connections", "idle-for"), "s"),
    ),
    switch("--log-json", Effect::Fixed(("log", "format"), "\"json\"")),
    switch(
        "--enable-mesh",
        Effect::Absent("add a [replicas] if several routers run; each reads the events itself"),
    ),
    many(
        "--mesh-peer-urls",
        Effect::Absent("add a [replicas]; the routers meet in NATS"),
    ),
    switch(
        "--enable-wasm",
        Effect::Absent("a policy places requests and does not change them"),
    ),
    one(
        "--mcp-config-path",
        Effect::Absent("keep a server of tools beside the router"),
    ),
    one(
        "--history-backend",
        Effect::Absent("responses stay in the engine; the router knows who has which"),
    ),
    one("--reasoning-parser", Effect::Needless(ENGINE)),
    one("--tool-call-parser", Effect::Needless(ENGINE)),
    one(
        "--backend",
        Effect::Needless("the engine is recognized by its answers"),
    ),
];
