//! The metrics of shadows.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::base::buckets::decision_times;

/// A shadow by the route's pool, what the route takes, and its name in the configuration.
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

/// What came of asking a shadow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultKind {
    Agreed,
    Differed,
    Held,
    Rejected,
    Passed,
    Fault,
    Resting,
}

/// Every kind in the order of its discriminant, with its label.
pub(super) const RESULTS: [(ResultKind, &str); 7] = [
    (ResultKind::Agreed, "agreed"),
    (ResultKind::Differed, "differed"),
    (ResultKind::Held, "held"),
    (ResultKind::Rejected, "rejected"),
    (ResultKind::Passed, "passed"),
    (ResultKind::Fault, "fault"),
    (ResultKind::Resting, "resting"),
];

impl ResultKind {
    pub(super) fn as_str(self) -> &'static str {
        RESULTS[self as usize].1
    }
}

/// Of all shadows.
#[derive(Debug, Clone)]
pub(crate) struct ShadowFamilies {
    decisions: Family<ShadowResultLabel, Counter>,
    dropped: Family<ShadowLabel, Counter>,
    matched: Family<ShadowChoiceLabel, Counter>,
    ahead: Family<ShadowChoiceLabel, Counter>,
    predictions: Family<ShadowLabel, Counter>,
    predicted: Family<ShadowChoiceLabel, Seconds>,
    time: Family<ShadowLabel, Histogram, fn() -> Histogram>,
}

impl Default for ShadowFamilies {
    fn default() -> Self {
        Self {
            decisions: Family::default(),
            dropped: Family::default(),
            matched: Family::default(),
            ahead: Family::default(),
            predictions: Family::default(),
            predicted: Family::default(),
            time: Family::new_with_constructor(decision_times),
        }
    }
}

impl ShadowFamilies {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "shadow_decisions",
            "Decisions of a shadow: agreed and differed are about the workers that were chosen",
            self.decisions.clone(),
        );
        r.register(
            "shadow_dropped",
            "Requests a shadow was not asked about, since too many waited",
            self.dropped.clone(),
        );
        r.register(
            "shadow_matched_tokens",
            "Where both chose: prompt tokens that the index said the worker holds, of the shadow's choice and of the one in force",
            self.matched.clone(),
        );
        r.register(
            "shadow_tokens_ahead",
            "Where both chose: tokens the worker would compute before the request's first token, its own uncached ones included",
            self.ahead.clone(),
        );
        r.register(
            "shadow_predictions",
            "Decisions where both chose and a time to first token is predicted for both choices",
            self.predictions.clone(),
        );
        r.register(
            "shadow_predicted_ttft_seconds",
            "Sum of those times, of the shadow's choice and of the one in force",
            self.predicted.clone(),
        );
        r.register(
            "shadow_decision_seconds",
            "Time of the calls of one decision of a shadow",
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

/// Handles of one shadow.
#[derive(Debug)]
pub(crate) struct ShadowMetrics {
    decisions: [Counter; RESULTS.len()],
    pub(super) dropped: Counter,
    /// Of the shadow's choice, of the one in force.
    pub(super) matched: [Counter; 2],
    /// The same.
    pub(super) ahead: [Counter; 2],
    pub(super) predictions: Counter,
    /// The same.
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
