//! Catalogue of the features of the request and its pool.

use super::{FeatureDoc, RequestFeature};

/// Every request feature.
pub const REQUEST_CATALOGUE: &[(RequestFeature, FeatureDoc)] = &[
    (
        RequestFeature::PromptTokens,
        FeatureDoc {
            name: "request.prompt-tokens",
            unit: "tokens",
            freshness: "this request",
            unknown: "the prompt's tokens are unknown (no tokenizer, or a timeout)",
            meaning: "length of the prompt; this feature makes the router tokenize",
        },
    ),
    (
        RequestFeature::MaxTokens,
        FeatureDoc {
            name: "request.max-tokens",
            unit: "tokens",
            freshness: "this request",
            unknown: "the client set no limit",
            meaning: "the client's limit of output tokens",
        },
    ),
    (
        RequestFeature::BodyBytes,
        FeatureDoc {
            name: "request.body-bytes",
            unit: "bytes",
            freshness: "this request",
            unknown: "never",
            meaning: "length of the request body",
        },
    ),
    (
        RequestFeature::Priority,
        FeatureDoc {
            name: "request.priority",
            unit: "a rank, lower is sooner (as in vLLM)",
            freshness: "this request",
            unknown: "the body has no `priority`",
            meaning: "`priority` of the request body",
        },
    ),
    (
        RequestFeature::Stream,
        FeatureDoc {
            name: "request.stream",
            unit: "0 or 1",
            freshness: "this request",
            unknown: "never",
            meaning: "1 for a streamed answer",
        },
    ),
    (
        RequestFeature::WaitedMs,
        FeatureDoc {
            name: "request.waited-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "never",
            meaning: "time since the request's head arrived",
        },
    ),
    (
        RequestFeature::DecodeAlone,
        FeatureDoc {
            name: "request.decode-alone",
            unit: "0 or 1",
            freshness: "the active configuration",
            unknown: "never",
            meaning: "1 if a decode worker may serve the whole request; otherwise one without a prefill worker is a fault",
        },
    ),
    (
        RequestFeature::Tried,
        FeatureDoc {
            name: "request.tried",
            unit: "workers",
            freshness: "now",
            unknown: "never",
            meaning: "workers that failed this request already; they are no candidates",
        },
    ),
    (
        RequestFeature::HoldLeftMs,
        FeatureDoc {
            name: "request.hold-left-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "the pool holds no requests (`queue-limit = 0`)",
            meaning: "remaining time in which the request may be held; after that it is answered with an error",
        },
    ),
    (
        RequestFeature::TtftTargetMs,
        FeatureDoc {
            name: "request.ttft-target-ms",
            unit: "milliseconds",
            freshness: "the active configuration",
            unknown: "neither the route nor the pool has a `ttft-target`",
            meaning: "target time from the request's arrival to its first token",
        },
    ),
    (
        RequestFeature::PrefixBest,
        FeatureDoc {
            name: "prefix.best-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "`prefix.any-tokens` is unknown for all candidates",
            meaning: "longest match of any candidate: the maximum of `prefix.any-tokens`",
        },
    ),
    prefix_key(64, "prefix.key-64"),
    prefix_key(128, "prefix.key-128"),
    prefix_key(256, "prefix.key-256"),
    prefix_key(512, "prefix.key-512"),
    prefix_key(1_024, "prefix.key-1024"),
    prefix_key(2_048, "prefix.key-2048"),
    prefix_key(4_096, "prefix.key-4096"),
    prefix_key(8_192, "prefix.key-8192"),
    prefix_key(16_384, "prefix.key-16384"),
    (
        RequestFeature::PoolQueued,
        FeatureDoc {
            name: "pool.queued",
            unit: "requests",
            freshness: "now",
            unknown: "never",
            meaning: "other requests held in the pool's queue",
        },
    ),
    (
        RequestFeature::PoolWorkers,
        FeatureDoc {
            name: "pool.workers",
            unit: "workers",
            freshness: "the active configuration",
            unknown: "never",
            meaning: "workers of the pool that serve the model, candidates or not",
        },
    ),
];

const fn prefix_key(tokens: u32, name: &'static str) -> (RequestFeature, FeatureDoc) {
    let doc = FeatureDoc {
        name,
        unit: "a 53-bit hash",
        freshness: "this request",
        unknown: "the prompt's tokens are unknown, or fewer than 16",
        meaning: "hash of the first N tokens (of a shorter prompt, all whole blocks of 16), equal in every router",
    };
    (RequestFeature::PrefixKey(tokens), doc)
}
