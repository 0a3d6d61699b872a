//! Metrics of shadow policies.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::base::metric_labels::TimesFamily;

/// Labels of a shadow: the route's pool, the route's conditions, and the shadow's name in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ShadowLabel {
    pub(crate) pool: String,
    pub(crate) route: String,
    pub(crate) policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShadowResultLabel {
    pool: String,
    route: String,
    policy: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShadowChoiceLabel {
    pool: String,
    route: String,
    policy: String,
    choice: &'static str,
}

/// A sum of times.
type Seconds = Counter<f64, AtomicU64>;

/// Result of calling a shadow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultKind {
    Agreed,
    Differed,
    Held,
    Rejected,
    Passed,
    Fault,
    CircuitOpen,
}

/// Every kind in the order of its discriminant, with its label.
pub(super) const RESULTS: [(ResultKind, &str); 7] = [
    (ResultKind::Agreed, "agreed"),
    (ResultKind::Differed, "differed"),
    (ResultKind::Held, "held"),
    (ResultKind::Rejected, "rejected"),
    (ResultKind::Passed, "passed"),
    (ResultKind::Fault, "fault"),
    (ResultKind::CircuitOpen, "circuit-open"),
];

impl ResultKind {
    pub(super) fn as_str(self) -> &'static str {
        RESULTS[self as usize].1
    }
}

/// Metric families of all shadows.
#[derive(Debug, Clone)]
pub(crate) struct ShadowFamilies {
    decisions: Family<ShadowResultLabel, Counter>,
    dropped: Family<ShadowLabel, Counter>,
    matched: Family<ShadowChoiceLabel, Counter>,
    ahead: Family<ShadowChoiceLabel, Counter>,
    predictions: Family<ShadowLabel, Counter>,
    predicted: Family<ShadowChoiceLabel, Seconds>,
    time: TimesFamily<ShadowLabel>,
}

impl ShadowFamilies {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            decisions: Family::default(),
            dropped: Family::default(),
            matched: Family::default(),
            ahead: Family::default(),
            predictions: Family::default(),
            predicted: Family::default(),
            time: Family::new_with_constructor(bounds.of("shadow_decision_seconds")),
        }
    }
}

impl ShadowFamilies {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "shadow_decisions",
            "Decisions of a shadow, by result; agreed and differed compare the chosen workers",
            self.decisions.clone(),
        );
        r.register(
            "shadow_dropped",
            "Requests dropped because a shadow's queue was full",
            self.dropped.clone(),
        );
        r.register(
            "shadow_matched_tokens",
            "Cached prompt tokens at the worker that the shadow or the active policy chose, if both chose",
            self.matched.clone(),
        );
        r.register(
            "shadow_tokens_ahead",
            "Tokens to compute before the request's first token, including its own uncached ones, if both chose",
            self.ahead.clone(),
        );
        r.register(
            "shadow_predictions",
            "Decisions with a predicted time to first token for both choices",
            self.predictions.clone(),
        );
        r.register(
            "shadow_predicted_ttft_seconds",
            "Sum of the predicted times to first token, of the shadow's and of the active policy's choice",
            self.predicted.clone(),
        );
        r.register(
            "shadow_decision_seconds",
            "Time of one decision of a shadow",
            self.time.clone(),
        );
    }

    pub(crate) fn shadow(&self, shadow: &ShadowLabel) -> ShadowMetrics {
        let choice = |choice| ShadowChoiceLabel {
            pool: shadow.pool.clone(),
            route: shadow.route.clone(),
            policy: shadow.policy.clone(),
            choice,
        };
        let result = |result| ShadowResultLabel {
            pool: shadow.pool.clone(),
            route: shadow.route.clone(),
            policy: shadow.policy.clone(),
            result,
        };
        let choices = ["shadow", "active"];
        ShadowMetrics {
            decisions: RESULTS.map(|(_, label)| self.decisions.get_or_create_owned(&result(label))),
            dropped: self.dropped.get_or_create_owned(shadow),
            matched: choices.map(|label| self.matched.get_or_create_owned(&choice(label))),
            ahead: choices.map(|label| self.ahead.get_or_create_owned(&choice(label))),
            predictions: self.predictions.get_or_create_owned(shadow),
            predicted: choices.map(|label| self.predicted.get_or_create_owned(&choice(label))),
            time: self.time.get_or_create_owned(shadow),
        }
    }
}

/// Metric handles of one shadow.
#[derive(Debug)]
pub(crate) struct ShadowMetrics {
    decisions: [Counter; RESULTS.len()],
    pub(super) dropped: Counter,
    /// Tokens matched by the shadow's and by the active policy's choice.
    pub(super) matched: [Counter; 2],
    /// Tokens to be computed, in the same order.
    pub(super) ahead: [Counter; 2],
    pub(super) predictions: Counter,
    /// Predicted times, in the same order.
    pub(super) predicted: [Seconds; 2],
    pub(super) time: Histogram,
}

impl ShadowMetrics {
    pub(super) fn decisions(&self, result: ResultKind) -> &Counter {
        &self.decisions[result as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_stands_at_its_discriminant() {
        let mut results = RESULTS.iter().enumerate();
        assert!(results.all(|(at, (result, _))| *result as usize == at));
    }
}
