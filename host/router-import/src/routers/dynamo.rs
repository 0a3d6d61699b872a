//! Flags of NVIDIA Dynamo's frontend.

use crate::rule::{Effect, FlagRule, one, switch};

/// Host and port that it listens on by default.
pub(super) const LISTEN: (&str, u16) = ("0.0.0.0", 8000);
/// Its router modes.
const MODES: &[(&str, &str)] = &[
    ("kv", "ttft-queue"),
    ("round_robin", "round-robin"),
    ("random", "random"),
    ("power_of_two", "power-of-two"),
    ("least_loaded", "least-request"),
];

/// Remedy for the parameters of its cost.
const COST: &str = "set `params` of a policy with `builtin` = `dynamo-kv-cost`, the same formula";

/// The flags.
pub(super) const RULES: &[FlagRule] = &[
    one("--http-host", Effect::Host),
    one("--http-port", Effect::Port),
    one("--tls-cert-path", Effect::Text(("server.tls", "cert"))),
    one("--tls-key-path", Effect::Text(("server.tls", "key"))),
    one(
        "--tls-client-ca-cert-path",
        Effect::Text(("server.tls", "client-ca")),
    ),
    one("--router-mode", Effect::Policy("policy", MODES)),
    one("--router-kv-overlap-score-credit", Effect::Absent(COST)),
    one("--router-prefill-load-scale", Effect::Absent(COST)),
    one("--kv-overlap-score-weight", Effect::Absent(COST)),
    one(
        "--router-temperature",
        Effect::Absent("use a pipeline with `pick` = `softmax` and `temperature`"),
    ),
    switch("--no-router-kv-events", Effect::AssumedCaches),
    switch("--no-kv-events", Effect::AssumedCaches),
    one("--kv-cache-block-size", Effect::Needless("the events have it")),
    switch(
        "--router-replica-sync",
        Effect::Absent("add a [replicas] if several routers run"),
    ),
    one(
        "--namespace",
        Effect::Absent("start the engines with their own OpenAI servers, and name them as workers"),
    ),
    one("--model-name", Effect::Needless("each worker lists its models")),
    one(
        "--model-path",
        Effect::Absent("set `tokenizer` of [models.NAME] to the file"),
    ),
];
