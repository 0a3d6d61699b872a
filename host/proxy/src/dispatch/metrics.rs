//! Metrics of dispatch: requests and prompts of pools, splits over two workers, and shadows.

use std::sync::Arc;

use inference_api::EndpointClass;
use observability::{ExemplarBook, TracedHistogram};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::base::label::{OUTCOMES, Outcome};
use crate::base::metric_labels::{PoolLabel, PoolOutcomeLabel, TimesFamily};
use crate::base::reply::Refusal;
use crate::base::traced_family::TracedFamily;
use crate::dispatch::model_metrics::{ModelFamilies, ModelTable};
use crate::dispatch::shadow::ShadowFamilies;
use crate::fleet::health::RetryMetrics;
use crate::observe::stages::STAGES;
use crate::tokens::PromptMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolShapeLabel {
    pool: String,
    shape: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolStageLabel {
    pool: String,
    stage: &'static str,
}

/// Metrics of dispatch. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct DispatchMetrics {
    pub(crate) pools: PoolFamilies,
    pub(crate) models: ModelFamilies,
    pub(crate) splits: SplitFamilies,
    pub(crate) shadows: ShadowFamilies,
    /// Exemplars of the histograms.
    pub(crate) exemplars: ExemplarBook,
}

impl DispatchMetrics {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        let exemplars = ExemplarBook::default();
        Self {
            pools: PoolFamilies::new(bounds, &exemplars),
            models: ModelFamilies::new(bounds, &exemplars),
            splits: SplitFamilies::new(bounds),
            shadows: ShadowFamilies::new(bounds),
            exemplars,
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.pools.register(registry);
        self.models.register(registry);
        self.splits.register(registry);
        self.shadows.register(registry);
    }

    /// Counts a request that no route matched.
    pub(crate) fn unrouted(&self, class: EndpointClass, refusal: &Refusal) {
        self.pools.unrouted(refusal.outcome());
        self.models.unrouted(class, refusal.status());
    }
}

/// Metric families of all pools.
#[derive(Debug, Clone)]
pub(crate) struct PoolFamilies {
    requests: Family<PoolOutcomeLabel, Counter>,
    in_flight: Family<PoolLabel, Gauge>,
    times: TimeFamilies,
    prompts: ReuseFamilies,
    candidates: TimesFamily<PoolLabel>,
    index_queries: Family<PoolLabel, Counter>,
}

/// Families of times.
#[derive(Debug, Clone)]
struct TimeFamilies {
    stages: TimesFamily<PoolStageLabel>,
    overhead: TimesFamily<PoolLabel>,
    longest_pauses: TracedFamily<PoolLabel>,
}

/// Families of prompt tokens, from those that came to those that were cached.
#[derive(Debug, Clone)]
struct ReuseFamilies {
    prompt: Family<PoolLabel, Counter>,
    best_match: Family<PoolLabel, Counter>,
    matched: Family<PoolLabel, Counter>,
    matched_lengths: TimesFamily<PoolLabel>,
    reported_prompt: Family<PoolLabel, Counter>,
    cached: Family<PoolLabel, Counter>,
}

impl PoolFamilies {
    pub(crate) fn new(bounds: &BucketBounds, exemplars: &ExemplarBook) -> Self {
        Self {
            requests: Family::default(),
            in_flight: Family::default(),
            times: TimeFamilies {
                stages: Family::new_with_constructor(bounds.of("stage_seconds")),
                overhead: Family::new_with_constructor(bounds.of("overhead_seconds")),
                longest_pauses: TracedFamily::new("stream_longest_pause_seconds", bounds, exemplars),
            },
            prompts: ReuseFamilies {
                prompt: Family::default(),
                best_match: Family::default(),
                matched: Family::default(),
                matched_lengths: Family::new_with_constructor(bounds.of("matched_prompt_tokens")),
                reported_prompt: Family::default(),
                cached: Family::default(),
            },
            candidates: Family::new_with_constructor(bounds.of("decision_candidates")),
            index_queries: Family::default(),
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
            "requests_in_flight",
            "Requests between the match of their route and the end of their answer",
            self.in_flight.clone(),
        );
        self.times.register(r);
        self.prompts.register(r);
        r.register(
            "decision_candidates",
            "Candidates of a policy's call",
            self.candidates.clone(),
        );
        r.register(
            "index_queries",
            "Queries of the prefix index, one for all candidates of a decision",
            self.index_queries.clone(),
        );
    }

    /// Returns the metrics of one pool, with those that others own.
    pub(crate) fn pool(&self, name: &str, shared: SharedPoolMetrics) -> PoolMetrics {
        let SharedPoolMetrics {
            retries,
            prompts,
            models,
        } = shared;
        let pool = PoolLabel::of(name);
        let with = |outcome| PoolOutcomeLabel {
            pool: name.to_owned(),
            outcome,
        };
        PoolMetrics {
            requests: OUTCOMES.map(|(_, label)| self.requests.get_or_create_owned(&with(label))),
            in_flight: self.in_flight.get_or_create_owned(&pool),
            times: self.times.pool(name),
            prompt_tokens: self.prompts.pool(&pool),
            candidates: self.candidates.get_or_create_owned(&pool),
            index_queries: self.index_queries.get_or_create_owned(&pool),
            retries,
            prompts,
            models,
        }
    }

    /// Counts a request that no route matched.
    fn unrouted(&self, outcome: Outcome) {
        let label = PoolOutcomeLabel {
            pool: String::new(),
            outcome: OUTCOMES[outcome as usize].1,
        };
        self.requests.get_or_create(&label).inc();
    }
}

impl TimeFamilies {
    fn pool(&self, name: &str) -> PoolTimes {
        let stage = |stage| PoolStageLabel {
            pool: name.to_owned(),
            stage,
        };
        let pool = PoolLabel::of(name);
        PoolTimes {
            stages: STAGES.map(|(_, label)| self.stages.get_or_create_owned(&stage(label))),
            overhead: self.overhead.get_or_create_owned(&pool),
            longest_pauses: self.longest_pauses.histogram(&pool, &[("pool", name)]),
        }
    }

    fn register(&self, r: &mut Registry) {
        r.register(
            "stage_seconds",
            "Times of the stages before the answer",
            self.stages.clone(),
        );
        r.register(
            "overhead_seconds",
            "The router's own time: from the request's head to its first dispatch, without reception of the body and queue",
            self.overhead.clone(),
        );
        r.register(
            "stream_longest_pause_seconds",
            "Longest pause between two pieces of a complete streamed answer",
            self.longest_pauses.family.clone(),
        );
    }
}

impl ReuseFamilies {
    fn pool(&self, pool: &PoolLabel) -> ReuseMetrics {
        ReuseMetrics {
            prompt: self.prompt.get_or_create_owned(pool),
            best_match: self.best_match.get_or_create_owned(pool),
            matched: self.matched.get_or_create_owned(pool),
            matched_lengths: self.matched_lengths.get_or_create_owned(pool),
            reported_prompt: self.reported_prompt.get_or_create_owned(pool),
            cached: self.cached.get_or_create_owned(pool),
        }
    }

    fn register(&self, r: &mut Registry) {
        r.register(
            "prompt_tokens",
            "Prompt tokens of routed requests with known tokens",
            self.prompt.clone(),
        );
        r.register(
            "best_match_tokens",
            "Of those, tokens cached at the candidate with the longest match according to the index",
            self.best_match.clone(),
        );
        r.register(
            "matched_tokens",
            "Of those, tokens cached at the chosen worker according to the index",
            self.matched.clone(),
        );
        r.register(
            "matched_prompt_tokens",
            "Cached prompt tokens at the chosen worker according to the index, per request",
            self.matched_lengths.clone(),
        );
        r.register(
            "reported_prompt_tokens",
            "Prompt tokens of answers whose usage reports cached tokens",
            self.reported_prompt.clone(),
        );
        r.register(
            "cached_tokens",
            "Cached prompt tokens in the usage of workers' answers",
            self.cached.clone(),
        );
    }
}

/// Metric families of requests that are split over two workers.
#[derive(Debug, Clone)]
pub(crate) struct SplitFamilies {
    placements: Family<PoolShapeLabel, Counter>,
    handover_failures: Family<PoolLabel, Counter>,
    prefill_time: TimesFamily<PoolLabel>,
}

impl SplitFamilies {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            placements: Family::default(),
            handover_failures: Family::default(),
            prefill_time: Family::new_with_constructor(bounds.of("pd_prefill_seconds")),
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
    pub(crate) in_flight: Gauge,
    pub(crate) times: PoolTimes,
    pub(crate) prompt_tokens: ReuseMetrics,
    pub(crate) candidates: Histogram,
    pub(crate) index_queries: Counter,
    pub(crate) retries: RetryMetrics,
    pub(crate) prompts: PromptMetrics,
    pub(crate) models: Arc<ModelTable>,
}

/// Metric handles of one pool that other groups own.
#[derive(Debug)]
pub(crate) struct SharedPoolMetrics {
    pub(crate) retries: RetryMetrics,
    pub(crate) prompts: PromptMetrics,
    pub(crate) models: Arc<ModelTable>,
}

impl PoolMetrics {
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.requests[outcome as usize].inc();
    }

    /// Returns the number of requests with an outcome.
    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        self.requests[outcome as usize].get()
    }
}

/// Histograms of one pool's times.
#[derive(Debug)]
pub(crate) struct PoolTimes {
    /// Times of the stages, indexed by their discriminants.
    pub(crate) stages: [Histogram; STAGES.len()],
    pub(crate) overhead: Histogram,
    pub(crate) longest_pauses: TracedHistogram,
}

/// Counters of one pool's prompt tokens.
#[derive(Debug)]
pub(crate) struct ReuseMetrics {
    pub(crate) prompt: Counter,
    pub(crate) best_match: Counter,
    pub(crate) matched: Counter,
    pub(crate) matched_lengths: Histogram,
    pub(crate) reported_prompt: Counter,
    pub(crate) cached: Counter,
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
