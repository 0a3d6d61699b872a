//! What can be asked of the request and its pool.

use super::{FeatureDoc, RequestFeature};

/// Every request feature.
pub const REQUEST_CATALOGUE: &[(RequestFeature, FeatureDoc)] = &[
    (
        RequestFeature::PromptTokens,
        FeatureDoc {
            name: "request.prompt-tokens",
            unit: "tokens",
            freshness: "this request",
            unknown: "the prompt's tokens are not known (no tokeniser, or it missed its deadline)",
            meaning: "length of the prompt; asking for it makes the router tokenise",
        },
    ),
    (
        RequestFeature::MaxTokens,
        FeatureDoc {
            name: "request.max-tokens",
            unit: "tokens",
            freshness: "this request",
            unknown: "the client set no limit",
            meaning: "most tokens the client allows in the answer",
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
            meaning: "1 where the client asked for a streamed answer",
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
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "1 where a decode worker may do the whole of the request; elsewhere naming one without a prefill worker is a fault",
        },
    ),
    (
        RequestFeature::Tried,
        FeatureDoc {
            name: "request.tried",
            unit: "workers",
            freshness: "now",
            unknown: "never",
            meaning: "workers that this request was tried on in vain; they are not offered again",
        },
    ),
    (
        RequestFeature::HoldLeftMs,
        FeatureDoc {
            name: "request.hold-left-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "the pool holds no requests, or no more",
            meaning: "how much longer the request may be held in all; after that it is answered with an error",
        },
    ),
    (
        RequestFeature::PrefixBest,
        FeatureDoc {
            name: "prefix.best-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "of no candidate `prefix.any-tokens` is known",
            meaning: "longest match of any candidate: the greatest of `prefix.any-tokens`",
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
            meaning: "other requests that are held in the pool's queue",
        },
    ),
    (
        RequestFeature::PoolWorkers,
        FeatureDoc {
            name: "pool.workers",
            unit: "workers",
            freshness: "the configuration in force",
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
        unknown: "the prompt's tokens are not known, or are fewer than 16",
        meaning: "hash of the prompt's first so many tokens; of a shorter prompt's all, in whole blocks of 16. Prompts that begin alike have equal keys, \
                  in every router; an adapter and a `cache_salt` make others. Asking for one makes the router tokenise, but not ask the index",
    };
    (RequestFeature::PrefixKey(tokens), doc)
}
