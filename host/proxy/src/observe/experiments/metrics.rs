//! Metrics of the arms of experiments.

use experiment::RequestResult;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::base::label::{OUTCOMES, Outcome};
use crate::base::metric_labels::TimesFamily;

/// Labels of an arm: pool, matching rule of the route, and policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ArmLabel {
    pub(crate) pool: String,
    pub(crate) route: String,
    pub(crate) policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArmOutcomeLabel {
    pool: String,
    route: String,
    policy: String,
    outcome: &'static str,
}

/// Metric families of all arms.
#[derive(Debug, Clone)]
pub(crate) struct ArmFamilies {
    requests: Family<ArmOutcomeLabel, Counter>,
    errors: Family<ArmLabel, Counter>,
    first_token: TimesFamily<ArmLabel>,
    between: TimesFamily<ArmLabel>,
    prompt_tokens: Family<ArmLabel, Counter>,
    cached_tokens: Family<ArmLabel, Counter>,
}

impl ArmFamilies {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            requests: Family::default(),
            errors: Family::default(),
            first_token: Family::new_with_constructor(bounds.of("arm_time_to_first_token_seconds")),
            between: Family::new_with_constructor(bounds.of("arm_time_between_tokens_seconds")),
            prompt_tokens: Family::default(),
            cached_tokens: Family::default(),
        }
    }
}

impl ArmFamilies {
    /// Registers the families.
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "arm_requests",
            "Requests of an arm, by outcome",
            self.requests.clone(),
        );
        r.register(
            "arm_errors",
            "Failed requests of an arm: no answer, a broken one, or a status of 429 or 500 and more",
            self.errors.clone(),
        );
        r.register(
            "arm_time_to_first_token_seconds",
            "From the request's head to the first byte of a streamed answer, by arm",
            self.first_token.clone(),
        );
        r.register(
            "arm_time_between_tokens_seconds",
            "From the first byte of a streamed answer to its end, divided by its tokens (without usage: chunks) less one",
            self.between.clone(),
        );
        r.register(
            "arm_prompt_tokens",
            "Prompt tokens of answers with cached tokens in their usage",
            self.prompt_tokens.clone(),
        );
        r.register(
            "arm_cached_tokens",
            "Of those, cached tokens",
            self.cached_tokens.clone(),
        );
    }

    /// Returns the metrics of an arm.
    pub(crate) fn arm(&self, arm: &ArmLabel) -> ArmMetrics {
        let with = |outcome| ArmOutcomeLabel {
            pool: arm.pool.clone(),
            route: arm.route.clone(),
            policy: arm.policy.clone(),
            outcome,
        };
        ArmMetrics {
            requests: OUTCOMES.map(|(_, label)| self.requests.get_or_create_owned(&with(label))),
            errors: self.errors.get_or_create_owned(arm),
            first_token: self.first_token.get_or_create_owned(arm),
            between: self.between.get_or_create_owned(arm),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(arm),
            cached_tokens: self.cached_tokens.get_or_create_owned(arm),
        }
    }
}

/// Metrics of one arm.
#[derive(Debug)]
pub(crate) struct ArmMetrics {
    requests: [Counter; OUTCOMES.len()],
    errors: Counter,
    first_token: Histogram,
    between: Histogram,
    prompt_tokens: Counter,
    cached_tokens: Counter,
}

impl ArmMetrics {
    /// Records the result of a request. `first_token` is in seconds.
    pub(crate) fn ended(&self, outcome: Outcome, first_token: Option<f64>, result: &RequestResult) {
        self.requests[outcome as usize].inc();
        if result.failed == Some(true) {
            self.errors.inc();
        }
        if let Some(seconds) = first_token {
            self.first_token.observe(seconds);
        }
        if let Some(seconds) = result.between {
            self.between.observe(seconds);
        }
        if let Some((prompt, cached)) = result.cached {
            self.prompt_tokens.inc_by(prompt);
            self.cached_tokens.inc_by(cached);
        }
    }
}
