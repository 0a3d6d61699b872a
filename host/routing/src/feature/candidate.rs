//! What can be asked of each candidate.

use super::{CandidateFeature, FeatureDoc};

/// Every candidate feature but `label.KEY`.
pub const CANDIDATE_CATALOGUE: &[(CandidateFeature, FeatureDoc)] = &[
    (
        CandidateFeature::Weight,
        FeatureDoc {
            name: "worker.weight",
            unit: "relative speed, 1 unless configured",
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "`weight` of the worker: 2 means twice the work in the same time",
        },
    ),
    (
        CandidateFeature::Role,
        FeatureDoc {
            name: "worker.role",
            unit: "0 mixed, 1 prefill, 2 decode",
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "what the worker does; a policy that asks for it places both legs of a request in one call",
        },
    ),
    (
        CandidateFeature::DpRank,
        FeatureDoc {
            name: "worker.dp-rank",
            unit: "a rank, from 0",
            freshness: "the configuration in force",
            unknown: "the worker is not one rank of several",
            meaning: "data-parallel rank that requests sent there are pinned to",
        },
    ),
    (
        CandidateFeature::NameHash,
        FeatureDoc {
            name: "worker.name-hash",
            unit: "a 53-bit hash",
            freshness: "the configuration in force",
            unknown: "never",
            meaning: "hash of the worker's name: the same in every router and after a restart, for rings and rendezvous hashing",
        },
    ),
    (
        CandidateFeature::AgeMs,
        FeatureDoc {
            name: "worker.age-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "never",
            meaning: "time since the worker joined this router's fleet; one that was there at the start joined then",
        },
    ),
    (
        CandidateFeature::Failures,
        FeatureDoc {
            name: "worker.failures",
            unit: "tries",
            freshness: "now, as this router knows it",
            unknown: "never",
            meaning: "tries in a row that it failed to answer; over 0, it is offered to find out whether it is back",
        },
    ),
    (
        CandidateFeature::Requests,
        FeatureDoc {
            name: "load.requests",
            unit: "requests",
            freshness: "now, as this router knows it",
            unknown: "never",
            meaning: "sent by this router and not yet answered in full",
        },
    ),
    (
        CandidateFeature::Queued,
        FeatureDoc {
            name: "load.queued",
            unit: "requests",
            freshness: "now, as this router knows it",
            unknown: "never",
            meaning: "sent by this router and without a first token: `load.requests` less `load.decoding`",
        },
    ),
    (
        CandidateFeature::PrefillTokens,
        FeatureDoc {
            name: "load.prefill-tokens",
            unit: "tokens",
            freshness: "now, as this router knows it",
            unknown: "never; where a prompt's tokens are not known, a quarter of its body's bytes stands for them",
            meaning: "prompt tokens without a cache match, summed over requests that have no first token yet (an answer in one piece hides it: it counts as come when it was to be expected)",
        },
    ),
    (
        CandidateFeature::Decoding,
        FeatureDoc {
            name: "load.decoding",
            unit: "requests",
            freshness: "now, as this router knows it",
            unknown: "never",
            meaning: "requests that have their first token and are not finished",
        },
    ),
    (
        CandidateFeature::DecodingTokens,
        FeatureDoc {
            name: "load.decoding-tokens",
            unit: "tokens",
            freshness: "now, as this router knows it",
            unknown: "never; estimated as in `load.prefill-tokens`",
            meaning: "prompt tokens, cached or not, of the requests past their first token: what decoding reads there, but for what was generated since",
        },
    ),
    (
        CandidateFeature::PromptTokens,
        FeatureDoc {
            name: "load.prompt-tokens",
            unit: "tokens",
            freshness: "now, as this router knows it",
            unknown: "never; estimated as in `load.prefill-tokens`",
            meaning: "prompt tokens, cached or not, of all requests in flight",
        },
    ),
    (
        CandidateFeature::TtftEwmaMs,
        FeatureDoc {
            name: "ttft.ewma-ms",
            unit: "milliseconds",
            freshness: "the last first token from that worker",
            unknown: "no request has had its first token from it yet",
            meaning: "moving average (weight 1/8 for the newest) of the time from dispatch to first token",
        },
    ),
    (
        CandidateFeature::TtftP90Ms,
        FeatureDoc {
            name: "ttft.p90-ms",
            unit: "milliseconds",
            freshness: "the last 64 first tokens from that worker",
            unknown: "fewer than 16 requests have had their first token from it",
            meaning: "nine in ten of those first tokens came within this time of the dispatch",
        },
    ),
    (
        CandidateFeature::TbtEwmaMs,
        FeatureDoc {
            name: "tbt.ewma-ms",
            unit: "milliseconds",
            freshness: "the last stream from that worker that told its tokens",
            unknown: "no stream of 8 tokens or more from it has told how many it had",
            meaning: "moving average (weight 1/8 for the newest) of the mean time between the tokens of an answer",
        },
    ),
    (
        CandidateFeature::PrefixDevice,
        FeatureDoc {
            name: "prefix.device-tokens",
            unit: "tokens",
            freshness: "the engine's events, some milliseconds",
            unknown: "the prompt's tokens are not known, or the worker has no live event feed",
            meaning: "longest prefix of the prompt whose every block is in device memory there",
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
            freshness: "fitted to the last 128 first tokens from that worker",
            unknown: "fewer than 16 streamed answers or prefill legs were measured there",
            meaning: "predicted time to this request's first token there, were nothing waiting before it; matched tokens count as cached",
        },
    ),
    (
        CandidateFeature::CostToken,
        FeatureDoc {
            name: "cost.token-ms",
            unit: "milliseconds a token",
            freshness: "as `cost.prefill-ms`",
            unknown: "as `cost.prefill-ms`",
            meaning: "time to compute one prompt token there; times `load.prefill-tokens`, the wait for the prompts before this one",
        },
    ),
    (
        CandidateFeature::CostTransfer,
        FeatureDoc {
            name: "cost.transfer-ms",
            unit: "milliseconds",
            freshness: "fitted to the last 128 prompts that worker fetched",
            unknown: "fewer than 16 prompts computed elsewhere were taken over there",
            meaning: "predicted time to the first token there, were the prompt computed elsewhere",
        },
    ),
    (
        CandidateFeature::CostTbt,
        FeatureDoc {
            name: "cost.tbt-ms",
            unit: "milliseconds",
            freshness: "fitted to the last 128 streams from that worker that told their tokens",
            unknown: "fewer than 16 streams of 8 tokens or more told how many they had",
            meaning: "predicted time between tokens there, were this request among those that decode",
        },
    ),
    (
        CandidateFeature::EngineRunning,
        FeatureDoc {
            name: "engine.running",
            unit: "requests",
            freshness: "the engine's last word, see `engine.age-ms`",
            unknown: "the engine has not told: its metrics are not read, or do not say",
            meaning: "requests the engine computes now, whoever sent them",
        },
    ),
    (
        CandidateFeature::EngineWaiting,
        FeatureDoc {
            name: "engine.waiting",
            unit: "requests",
            freshness: "as `engine.running`",
            unknown: "as `engine.running`",
            meaning: "requests that wait in the engine, whoever sent them",
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
            meaning: "tokens that the engine's KV cache holds when it is full",
        },
    ),
    (
        CandidateFeature::EngineAgeMs,
        FeatureDoc {
            name: "engine.age-ms",
            unit: "milliseconds",
            freshness: "now",
            unknown: "the engine has never told",
            meaning: "time since the engine told its load last; the other `engine.*` are as old",
        },
    ),
];
