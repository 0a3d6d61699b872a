//! Metrics of dispatch: requests and prompts of pools, splits over two workers, and shadows.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::base::buckets::{prompt_lengths, request_times};
use crate::base::label::{OUTCOMES, Outcome};
use crate::base::metric_labels::{PoolLabel, PoolOutcomeLabel, TimesFamily};
use crate::dispatch::shadow::ShadowFamilies;
use crate::fleet::health::RetryMetrics;
use crate::tokens::PromptMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolShapeLabel {
    pool: String,
    shape: &'static str,
}

/// Metrics of dispatch. A clone is another handle to the same numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct DispatchMetrics {
    pub(crate) pools: PoolFamilies,
    pub(crate) splits: SplitFamilies,
    pub(crate) shadows: ShadowFamilies,
}

impl DispatchMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.pools.register(registry);
        self.splits.register(registry);
        self.shadows.register(registry);
    }
}

/// Metric families of all pools.
#[derive(Debug, Clone)]
pub(crate) struct PoolFamilies {
    requests: Family<PoolOutcomeLabel, Counter>,
    first_token: TimesFamily<PoolLabel>,
    duration: TimesFamily<PoolLabel>,
    prompt_tokens: Family<PoolLabel, Counter>,
    matched_tokens: Family<PoolLabel, Counter>,
    matched_lengths: TimesFamily<PoolLabel>,
    index_queries: Family<PoolLabel, Counter>,
    cached_tokens: Family<PoolLabel, Counter>,
}

impl Default for PoolFamilies {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            first_token: Family::new_with_constructor(request_times),
            duration: Family::new_with_constructor(request_times),
            prompt_tokens: Family::default(),
            matched_tokens: Family::default(),
            matched_lengths: Family::new_with_constructor(prompt_lengths),
            index_queries: Family::default(),
            cached_tokens: Family::default(),
        }
    }
}

impl PoolFamilies {
    fn register(&self, r: &mut Registry) {
        r.register(
            "requests",
            "Inference requests by outcome; pool is empty if no route matched",
            self.requests.clone(),
        );
        r.register(
            "time_to_first_token_seconds",
            "From the request's head to the first byte of a streamed answer",
            self.first_token.clone(),
        );
        r.register(
            "request_duration_seconds",
            "From the request's head to the end of its answer",
            self.duration.clone(),
        );
        r.register(
            "prompt_tokens",
            "Prompt tokens of routed requests with known tokens",
            self.prompt_tokens.clone(),
        );
        r.register(
            "matched_tokens",
            "Of those, tokens cached at the chosen worker according to the index",
            self.matched_tokens.clone(),
        );
        r.register(
            "matched_prompt_tokens",
            "Cached prompt tokens at the chosen worker according to the index, per request",
            self.matched_lengths.clone(),
        );
        r.register(
            "index_queries",
            "Queries of the prefix index, one for all candidates of a decision",
            self.index_queries.clone(),
        );
        r.register(
            "cached_tokens",
            "Cached prompt tokens in the usage of workers' answers",
            self.cached_tokens.clone(),
        );
    }

    /// Returns the metrics of one pool, with those that fleet and tokens own.
    pub(crate) fn pool(&self, name: &str, retries: RetryMetrics, prompts: PromptMetrics) -> PoolMetrics {
        let pool = PoolLabel::of(name);
        let with = |outcome| PoolOutcomeLabel {
            pool: name.to_owned(),
            outcome,
        };
        PoolMetrics {
            requests: OUTCOMES.map(|(_, label)| self.requests.get_or_create_owned(&with(label))),
            first_token: self.first_token.get_or_create_owned(&pool),
            duration: self.duration.get_or_create_owned(&pool),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&pool),
            matched_tokens: self.matched_tokens.get_or_create_owned(&pool),
            matched_lengths: self.matched_lengths.get_or_create_owned(&pool),
            index_queries: self.index_queries.get_or_create_owned(&pool),
            cached_tokens: self.cached_tokens.get_or_create_owned(&pool),
            retries,
            prompts,
        }
    }

    /// Counts a request that no route matched.
    pub(crate) fn unrouted(&self, outcome: Outcome) {
        let label = PoolOutcomeLabel {
            pool: String::new(),
            outcome: OUTCOMES[outcome as usize].1,
        };
        self.requests.get_or_create(&label).inc();
    }
}

/// Metric families of requests that are split over two workers.
#[derive(Debug, Clone)]
pub(crate) struct SplitFamilies {
    placements: Family<PoolShapeLabel, Counter>,
    handover_failures: Family<PoolLabel, Counter>,
    prefill_time: TimesFamily<PoolLabel>,
}

impl Default for SplitFamilies {
    fn default() -> Self {
        Self {
            placements: Family::default(),
            handover_failures: Family::default(),
            prefill_time: Family::new_with_constructor(request_times),
        }
    }
}

impl SplitFamilies {
    fn register(&self, r: &mut Registry) {
        r.register(
            "pd_placements",
            "Attempts in a disaggregated pool by shape: a pair, one worker, or another decode worker for a computed prompt",
            self.placements.clone(),
        );
        r.register(
            "pd_handover_failures",
            "Prefill answers without handshake parameters: the decode worker computed the prompt",
            self.handover_failures.clone(),
        );
        r.register(
            "pd_unhanded",
            "Deprecated: use conductor_pd_handover_failures_total",
            self.handover_failures.clone(),
        );
        r.register(
            "pd_prefill_seconds",
            "From the dispatch of a prefill leg to the end of its answer",
            self.prefill_time.clone(),
        );
    }

    /// Returns the metrics of one pool's pairs.
    pub(crate) fn pool(&self, name: &str) -> PdMetrics {
        let shape = |shape| PoolShapeLabel {
            pool: name.to_owned(),
            shape,
        };
        let pool = PoolLabel::of(name);
        PdMetrics {
            pairs: self.placements.get_or_create_owned(&shape("pair")),
            whole: self.placements.get_or_create_owned(&shape("whole")),
            handed_again: self.placements.get_or_create_owned(&shape("decode-again")),
            handover_failures: self.handover_failures.get_or_create_owned(&pool),
            prefill_time: self.prefill_time.get_or_create_owned(&pool),
        }
    }
}

/// Metric handles of one pool.
#[derive(Debug)]
pub(crate) struct PoolMetrics {
    requests: [Counter; OUTCOMES.len()],
    pub(crate) first_token: Histogram,
    pub(crate) duration: Histogram,
    pub(crate) prompt_tokens: Counter,
    pub(crate) matched_tokens: Counter,
    pub(crate) matched_lengths: Histogram,
    pub(crate) index_queries: Counter,
    pub(crate) cached_tokens: Counter,
    pub(crate) retries: RetryMetrics,
    pub(crate) prompts: PromptMetrics,
}

impl PoolMetrics {
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.requests[outcome as usize].inc();
    }
}

/// Metric handles of one pool's pairs.
#[derive(Debug)]
pub(crate) struct PdMetrics {
    pub(crate) pairs: Counter,
    pub(crate) whole: Counter,
    pub(crate) handed_again: Counter,
    pub(crate) handover_failures: Counter,
    pub(crate) prefill_time: Histogram,
}
