//! Metrics of tokenization.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokenize::{TokenizationCache, Tokens};

use crate::base::buckets::BucketBounds;
use crate::base::label::{TOKEN_TRIES, TOKENS, TokenTry, TokensKind};
use crate::base::metric_labels::{PoolOutcomeLabel, TimesFamily};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FromLabel {
    from: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnLabel {
    on: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnLabel {
    turn: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabel {
    tokens: &'static str,
}

/// Counters of the conversations that are tokenized in the router.
#[derive(Debug, Clone)]
struct ConversationMetrics {
    continued: Counter,
    whole: Counter,
    equal: Counter,
    different: Counter,
    bytes: Gauge<u64, AtomicU64>,
    turns: Family<TurnLabel, Counter>,
    checks: Family<CheckLabel, Counter>,
}

impl ConversationMetrics {
    fn new() -> Self {
        let turns: Family<TurnLabel, Counter> = Family::default();
        let checks: Family<CheckLabel, Counter> = Family::default();
        Self {
            continued: turns.get_or_create_owned(&TurnLabel { turn: "continued" }),
            whole: turns.get_or_create_owned(&TurnLabel { turn: "whole" }),
            equal: checks.get_or_create_owned(&CheckLabel { tokens: "equal" }),
            different: checks.get_or_create_owned(&CheckLabel { tokens: "different" }),
            bytes: Gauge::default(),
            turns,
            checks,
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "tokenizer_turns",
            "Prompts tokenized in the router, as the continuation of a known conversation or whole",
            self.turns.clone(),
        );
        registry.register(
            "tokenizer_conversation_checks",
            "Continued conversations that were compared with their whole renderings",
            self.checks.clone(),
        );
        registry.register(
            "tokenizer_conversation_bytes",
            "Memory of the states of conversations",
            self.bytes.clone(),
        );
    }
}

/// Counters of a pool's queries of workers' tokenizers.
#[derive(Debug)]
pub(crate) struct TokenTries([Counter; TOKEN_TRIES.len()]);

impl TokenTries {
    pub(super) fn count(&self, end: TokenTry) {
        self.0[end as usize].inc();
    }
}

/// Counters of one pool's prompts.
#[derive(Debug)]
pub(crate) struct PromptMetrics {
    tokenized: [Counter; TOKENS.len()],
    pub(super) tries: TokenTries,
}

impl PromptMetrics {
    /// Counts a prompt by the source of its tokens.
    pub(super) fn count(&self, kind: TokensKind) {
        self.tokenized[kind as usize].inc();
    }
}

/// Handles of the tokenization metrics. A clone refers to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct TokensMetrics {
    cached: Counter,
    made: Counter,
    in_place: Histogram,
    apart: Histogram,
    cache_bytes: Gauge<u64, AtomicU64>,
    conversations: ConversationMetrics,
    tokens: Family<FromLabel, Counter>,
    times: TimesFamily<OnLabel>,
    tokenized: Family<PoolOutcomeLabel, Counter>,
    tries: Family<PoolOutcomeLabel, Counter>,
}

impl TokensMetrics {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        let tokens: Family<FromLabel, Counter> = Family::default();
        let times: TimesFamily<OnLabel> = Family::new_with_constructor(bounds.of("tokenizer_seconds"));
        Self {
            cached: tokens.get_or_create_owned(&FromLabel { from: "cache" }),
            made: tokens.get_or_create_owned(&FromLabel { from: "text" }),
            in_place: times.get_or_create_owned(&OnLabel { on: "request" }),
            apart: times.get_or_create_owned(&OnLabel { on: "thread" }),
            cache_bytes: Gauge::default(),
            conversations: ConversationMetrics::new(),
            tokens,
            times,
            tokenized: Family::default(),
            tries: Family::default(),
        }
    }
}

impl TokensMetrics {
    /// Returns the counters of a pool's prompts.
    pub(crate) fn pool(&self, pool: &str) -> PromptMetrics {
        let label = |outcome| PoolOutcomeLabel {
            pool: pool.to_owned(),
            outcome,
        };
        let tries = TOKEN_TRIES.map(|(_, outcome)| self.tries.get_or_create_owned(&label(outcome)));
        PromptMetrics {
            tokenized: TOKENS.map(|(_, outcome)| self.tokenized.get_or_create_owned(&label(outcome))),
            tries: TokenTries(tries),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tokenized",
            "Prompts by the source of their tokens",
            self.tokenized.clone(),
        );
        registry.register(
            "tokenize_tries",
            "Queries of workers' tokenizers, by outcome",
            self.tries.clone(),
        );
        registry.register(
            "tokenizer_tokens",
            "Prompt tokens of the router's tokenizers, from the tokenization cache or from the text",
            self.tokens.clone(),
        );
        registry.register(
            "tokenizer_seconds",
            "Time to render, look up and tokenize a prompt, on the request's thread or on a tokenizer thread",
            self.times.clone(),
        );
        registry.register(
            "tokenizer_cache_bytes",
            "Memory of the tokenization cache",
            self.cache_bytes.clone(),
        );
        self.conversations.register(registry);
    }

    pub(super) fn in_place(&self, began: Instant) {
        self.in_place.observe(began.elapsed().as_secs_f64());
    }

    pub(super) fn apart(&self, began: Instant) {
        self.apart.observe(began.elapsed().as_secs_f64());
    }

    /// Counts a prompt's tokens.
    pub(super) fn count(&self, tokens: &Tokens, cache: &TokenizationCache) {
        let Tokens { ids, cached, .. } = tokens;
        self.cached.inc_by(*cached as u64);
        self.made.inc_by(ids.len().saturating_sub(*cached) as u64);
        match tokens.is_continued {
            true => self.conversations.continued.inc(),
            false => self.conversations.whole.inc(),
        };
        self.cache_bytes(cache);
    }

    /// Counts a comparison of a continued conversation.
    pub(super) fn checked(&self, is_equal: bool) {
        match is_equal {
            true => self.conversations.equal.inc(),
            false => self.conversations.different.inc(),
        };
    }

    pub(super) fn cache_bytes(&self, cache: &TokenizationCache) {
        self.cache_bytes.set(cache.bytes() as u64);
        self.conversations.bytes.set(cache.conversation_bytes() as u64);
    }
}
