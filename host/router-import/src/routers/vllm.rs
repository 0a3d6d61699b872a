//! Flags of vllm-router.

use crate::rule::{Effect, FlagRule, many, one, switch};

/// Host and port that it listens on by default.
pub(super) const LISTEN: (&str, u16) = ("127.0.0.1", 30000);
/// Its policies.
const POLICIES: &[(&str, &str)] = &[
    ("cache_aware", "ttft-queue"),
    ("kv_aware", "ttft-queue"),
    ("round_robin", "round-robin"),
    ("random", "random"),
    ("power_of_two", "power-of-two"),
    ("consistent_hash", "consistent-hash-bounded-load"),
    ("sticky_least_loaded", "session-affinity"),
];

/// Its connectors.
const CONNECTORS: &[(&str, &str)] = &[("nixl", "nixl"), ("mooncake", "mooncake-connector")];

/// The flags that sglang-router has not.
pub(super) const RULES: &[FlagRule] = &[
    one("--policy", Effect::Policy("policy", POLICIES)),
    one("--prefill-policy", Effect::Policy("prefill-policy", POLICIES)),
    one("--decode-policy", Effect::Policy("decode-policy", POLICIES)),
    switch("--vllm-pd-disaggregation", Effect::Split("auto")),
    one("--kv-connector", Effect::Dialect(CONNECTORS)),
    many(
        "--kv-event-source",
        Effect::Needless("each worker is queried for its endpoints; else set `kv-events`"),
    ),
    many(
        "--kv-event-replay-source",
        Effect::Needless("each worker is queried for it; else set `kv-replay`"),
    ),
    switch(
        "--pd-kv-events",
        Effect::Needless("each worker is queried for its endpoints"),
    ),
    one("--kv-event-block-size", Effect::Needless("the events have it")),
    one("--kv-event-model", Effect::Needless("the events have it")),
    one(
        "--kv-penalty-host",
        Effect::Absent("set `host-worth` in `params` of a `cache-aware` policy; `ttft-queue` has none"),
    ),
    one(
        "--kv-penalty-disk",
        Effect::Absent("set `disk-worth` in `params` of a `cache-aware` policy; `ttft-queue` has none"),
    ),
    one("--intra-node-data-parallel-size", Effect::Ranks),
    one(
        "--vllm-discovery-address",
        Effect::Absent("name the workers, add a [discovery.NAME], or use POST /instances/add"),
    ),
    many(
        "--wasm-middleware",
        Effect::Absent("a policy places requests and does not change them"),
    ),
    switch(
        "--enable-program-scheduling",
        Effect::Absent("see the policies `kairos` and `session-affinity`"),
    ),
];
