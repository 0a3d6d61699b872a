//! Catalogue of the candidates' features.

use super::{CandidateFeature, FeatureDoc};

/// Every candidate feature but `label.KEY`.
pub const CANDIDATE_CATALOGUE: &[(CandidateFeature, FeatureDoc)] = &[
    (
        CandidateFeature::Weight,
        FeatureDoc {
            name: "worker.weight",
            unit: "relative speed, 1 unless configured",
            freshness: "the active configuration",
            unknown: "never",
            meaning: "`weight` of the worker: 2 means twice the work in the same time",
        },
    ),
    (
        CandidateFeature::Role,
        FeatureDoc {
            name: "worker.role",
            unit: "0 mixed, 1 prefill, 2 decode",
            freshness: "the active configuration",
            unknown: "never",
            meaning: "role of the worker; a policy with it places both legs of a request in one call",
        },
    ),
    (
        CandidateFeature::DpRank,
        FeatureDoc {
            name: "worker.dp-rank",
            unit: "a rank, from 0",
            freshness: "the active configuration",
            unknown: "the worker is not one rank of several",
            meaning: "data-parallel rank of requests sent there",
        },
    ),
    (
        CandidateFeature::NameHash,
        FeatureDoc {
            name: "worker.name-hash",
            unit: "a 53-bit hash",
            freshness: "the active configuration",
            unknown: "never",
            meaning: "hash of the worker's name, equal in every router and after a restart, for consistent or rendezvous hashing",
        },
    ),
    (
        CandidateFeature::AgeMs,
        FeatureDoc {
            name: "worker.age-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "never",
            meaning: "time since the worker joined this router's fleet; initial workers joined at the start",
        },
    ),
    (
        CandidateFeature::Failures,
        FeatureDoc {
            name: "worker.failures",
            unit: "attempts",
            freshness: "now, of this router",
            unknown: "never",
            meaning: "consecutive failed attempts; a candidate above 0 is a probe for recovery",
        },
    ),
    (
        CandidateFeature::Requests,
        FeatureDoc {
            name: "load.requests",
            unit: "requests",
            freshness: "now, of this router, or with `[replicas]` of the fleet",
            unknown: "never",
            meaning: "requests in flight: sent and not yet answered in full",
        },
    ),
    (
        CandidateFeature::Queued,
        FeatureDoc {
            name: "load.queued",
            unit: "requests",
            freshness: "now, of this router, or with `[replicas]` of the fleet",
            unknown: "never",
            meaning: "those without a first token: `load.requests` less `load.decoding`",
        },
    ),
    (
        CandidateFeature::PrefillTokens,
        FeatureDoc {
            name: "load.prefill-tokens",
            unit: "tokens",
            freshness: "now, of this router, or with `[replicas]` of the fleet",
            unknown: "never; unknown tokens are estimated as a quarter of the body's bytes",
            meaning: "uncached prompt tokens, summed over requests without a first token (estimated if not streamed)",
        },
    ),
    (
        CandidateFeature::Decoding,
        FeatureDoc {
            name: "load.decoding",
            unit: "requests",
            freshness: "now, of this router, or with `[replicas]` of the fleet",
            unknown: "never",
            meaning: "requests with a first token that are not finished",
        },
    ),
    (
        CandidateFeature::DecodingTokens,
        FeatureDoc {
            name: "load.decoding-tokens",
            unit: "tokens",
            freshness: "now, of this router, or with `[replicas]` of the fleet",
            unknown: "never; estimated as in `load.prefill-tokens`",
            meaning: "prompt tokens, cached or not, of the requests past their first token, without generated tokens",
        },
    ),
    (
        CandidateFeature::PromptTokens,
        FeatureDoc {
            name: "load.prompt-tokens",
            unit: "tokens",
            freshness: "now, of this router, or with `[replicas]` of the fleet",
            unknown: "never; estimated as in `load.prefill-tokens`",
            meaning: "prompt tokens, cached or not, of all requests in flight",
        },
    ),
    (
        CandidateFeature::TtftEwmaMs,
        FeatureDoc {
            name: "ttft.ewma-ms",
            unit: "milliseconds",
            freshness: "the worker's last first token",
            unknown: "no first token from it yet",
            meaning: "moving average (weight 1/8 for the newest) of the time from dispatch to first token",
        },
    ),
    (
        CandidateFeature::TtftP90Ms,
        FeatureDoc {
            name: "ttft.p90-ms",
            unit: "milliseconds",
            freshness: "the worker's last 64 first tokens",
            unknown: "fewer than 16 first tokens from it",
            meaning: "90th percentile of the time from dispatch to first token",
        },
    ),
    (
        CandidateFeature::TbtEwmaMs,
        FeatureDoc {
            name: "tbt.ewma-ms",
            unit: "milliseconds",
            freshness: "the worker's last stream with a token count",
            unknown: "no stream of 8 tokens or more with a token count from it",
            meaning: "moving average (weight 1/8 for the newest) of the mean time between the tokens of an answer",
        },
    ),
    (
        CandidateFeature::PrefixDevice,
        FeatureDoc {
            name: "prefix.device-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "the prompt's tokens are unknown, or the worker has no live event feed",
            meaning: "longest prefix of the prompt with every block in device memory there",
        },
    ),
    (
        CandidateFeature::PrefixHost,
        FeatureDoc {
            name: "prefix.host-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "as `prefix.device-tokens`",
            meaning: "the same, each block in device or host memory; never less than the device one",
        },
    ),
    (
        CandidateFeature::PrefixAny,
        FeatureDoc {
            name: "prefix.any-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "as `prefix.device-tokens`",
            meaning: "the same, each block on any tier; never less than the host one",
        },
    ),
    (
        CandidateFeature::CacheBlocks,
        FeatureDoc {
            name: "cache.blocks",
            unit: "blocks",
            freshness: "the engine's events, some milliseconds",
            unknown: "the worker has no live event feed",
            meaning: "blocks the index holds for that worker, over all tiers and ranks",
        },
    ),
    (
        CandidateFeature::CostPrefill,
        FeatureDoc {
            name: "cost.prefill-ms",
            unit: "milliseconds",
            freshness: "fit of the worker's last 128 first tokens",
            unknown: "fewer than 16 measured streamed answers or prefill legs",
            meaning: "predicted time to this request's first token on the idle worker; matched tokens count as cached",
        },
    ),
    (
        CandidateFeature::CostToken,
        FeatureDoc {
            name: "cost.token-ms",
            unit: "milliseconds a token",
            freshness: "as `cost.prefill-ms`",
            unknown: "as `cost.prefill-ms`",
            meaning: "time to compute one prompt token; multiplied by `load.prefill-tokens` it is the queueing time",
        },
    ),
    (
        CandidateFeature::CostTransfer,
        FeatureDoc {
            name: "cost.transfer-ms",
            unit: "milliseconds",
            freshness: "fit of the last 128 prompts that the worker fetched",
            unknown: "fewer than 16 fetched prompts",
            meaning: "predicted time to the first token if the prompt is computed elsewhere",
        },
    ),
    (
        CandidateFeature::CostTbt,
        FeatureDoc {
            name: "cost.tbt-ms",
            unit: "milliseconds",
            freshness: "fit of the worker's last 128 streams with a token count",
            unknown: "fewer than 16 streams of 8 tokens or more with a token count",
            meaning: "predicted time between tokens with this request in the decode batch",
        },
    ),
    (
        CandidateFeature::CostRequest,
        FeatureDoc {
            name: "cost.request-ms",
            unit: "milliseconds",
            freshness: "as `cost.prefill-ms`",
            unknown: "as `cost.prefill-ms`",
            meaning: "time to the first token besides the prompt's tokens: dispatch, network and the engine's own overhead",
        },
    ),
    (
        CandidateFeature::CostFetchedShare,
        FeatureDoc {
            name: "cost.fetched-share",
            unit: "a share, 0 to 1",
            freshness: "moving average over the worker's answers with a count of cached tokens",
            unknown: "fewer than 4 such answers to prompts of which another candidate held 512 tokens more",
            meaning: "share of the tokens that another candidate held and this worker lacked, and that it did not compute",
        },
    ),
    (
        CandidateFeature::EngineRunning,
        FeatureDoc {
            name: "engine.running",
            unit: "requests",
            freshness: "the engine's last report, see `engine.age-ms`",
            unknown: "the engine's metrics are not read, or lack it",
            meaning: "requests under computation in the engine, from all routers",
        },
    ),
    (
        CandidateFeature::EngineWaiting,
        FeatureDoc {
            name: "engine.waiting",
            unit: "requests",
            freshness: "as `engine.running`",
            unknown: "as `engine.running`",
            meaning: "requests that wait in the engine, from all routers",
        },
    ),
    (
        CandidateFeature::EngineKvUsage,
        FeatureDoc {
            name: "engine.kv-usage",
            unit: "a share, 0 to 1",
            freshness: "as `engine.running`",
            unknown: "as `engine.running`",
            meaning: "used share of the engine's KV cache",
        },
    ),
    (
        CandidateFeature::EngineKvTokens,
        FeatureDoc {
            name: "engine.kv-tokens",
            unit: "tokens",
            freshness: "as `engine.running`",
            unknown: "as `engine.running`",
            meaning: "capacity of the engine's KV cache",
        },
    ),
    (
        CandidateFeature::EngineAgeMs,
        FeatureDoc {
            name: "engine.age-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "the engine has not reported its load",
            meaning: "age of the engine's last report, and so of the other `engine.*`",
        },
    ),
];
