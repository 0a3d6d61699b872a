//! Histograms of the request path, with the bounds of their buckets.
//!
//! The bounds of latencies are those of vLLM where it has such a histogram: quantiles of the router and of an engine
//! can then be compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::metrics::family::MetricConstructor;
use prometheus_client::metrics::histogram::Histogram;

/// Times to the first token.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Times of whole requests and of waits.
const WHOLE: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0,
];
/// Times of one token.
const PER_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
    0.5, 1.0, 2.5, 5.0,
];
/// Pauses of streams.
const PAUSES: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
];
/// Times of the router's own steps, some of which wait for workers.
const STAGES: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Names of the histograms without their prefix, with their bounds.
const HISTOGRAMS: [(&str, Bounds); 17] = [
    ("time_to_first_token_seconds", Bounds::Listed(FIRST_TOKEN)),
    ("request_duration_seconds", Bounds::Listed(WHOLE)),
    ("time_per_output_token_seconds", Bounds::Listed(PER_TOKEN)),
    ("stream_longest_pause_seconds", Bounds::Listed(PAUSES)),
    ("stage_seconds", Bounds::Listed(STAGES)),
    ("overhead_seconds", Bounds::Listed(STAGES)),
    ("queue_wait_seconds", Bounds::Listed(WHOLE)),
    ("pd_prefill_seconds", Bounds::Listed(FIRST_TOKEN)),
    (
        "matched_prompt_tokens",
        Bounds::Doubling {
            first: 16.0,
            count: 17,
        },
    ),
    (
        "decision_candidates",
        Bounds::Doubling {
            first: 1.0,
            count: 11,
        },
    ),
    (
        "policy_gather_seconds",
        Bounds::Doubling {
            first: 0.25e-6,
            count: 16,
        },
    ),
    (
        "policy_decision_seconds",
        Bounds::Doubling {
            first: 0.25e-6,
            count: 16,
        },
    ),
    (
        "shadow_decision_seconds",
        Bounds::Doubling {
            first: 0.25e-6,
            count: 16,
        },
    ),
    (
        "tokenizer_seconds",
        Bounds::Doubling {
            first: 4e-6,
            count: 16,
        },
    ),
    ("runtime_delay_seconds", Bounds::Listed(STAGES)),
    ("arm_time_to_first_token_seconds", Bounds::Listed(FIRST_TOKEN)),
    ("arm_time_between_tokens_seconds", Bounds::Listed(PER_TOKEN)),
];

/// Default bounds of a histogram.
#[derive(Debug, Clone, Copy)]
enum Bounds {
    Listed(&'static [f64]),
    Doubling { first: f64, count: u16 },
}

impl Bounds {
    fn list(self) -> Arc<[f64]> {
        match self {
            Self::Listed(bounds) => bounds.into(),
            Self::Doubling { first, count } => {
                let bounds = (0..count).map(|number| first * f64::from(number).exp2());
                bounds.collect()
            }
        }
    }
}

/// Bounds of the buckets of all histograms: the defaults, unless they were replaced.
#[derive(Debug, Clone, Default)]
pub struct BucketBounds(BTreeMap<String, Arc<[f64]>>);

impl BucketBounds {
    /// Replaces the bounds of these histograms, by their names without prefix. The bounds ascend.
    #[must_use]
    pub fn replacing<'a>(bounds: impl IntoIterator<Item = (&'a str, &'a [f64])>) -> Self {
        let bounds = bounds.into_iter();
        Self(
            bounds
                .map(|(name, bounds)| (name.to_owned(), bounds.into()))
                .collect(),
        )
    }

    /// Returns the names of all histograms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        HISTOGRAMS.iter().map(|(name, _)| *name)
    }

    /// Returns a histogram with the bounds of that name.
    #[must_use]
    pub fn histogram(&self, name: &str) -> Histogram {
        self.of(name).new_metric()
    }

    /// Returns the constructor of a histogram.
    pub(crate) fn of(&self, name: &str) -> Buckets {
        if let Some(bounds) = self.0.get(name) {
            return Buckets(Arc::clone(bounds));
        }
        let mut histograms = HISTOGRAMS.iter();
        let own = histograms.find(|(known, _)| *known == name);
        debug_assert!(own.is_some(), "{name} has no bounds");
        Buckets(own.map_or(Bounds::Listed(WHOLE), |(_, bounds)| *bounds).list())
    }
}

/// Constructor of the histograms of one family.
#[derive(Debug, Clone)]
pub(crate) struct Buckets(Arc<[f64]>);

impl Buckets {
    /// Returns the upper bounds.
    pub(crate) fn bounds(&self) -> &Arc<[f64]> {
        &self.0
    }
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_histogram_has_ascending_bounds() {
        for name in BucketBounds::names() {
            let bounds = BucketBounds::default().of(name).0;
            assert!(
                bounds.windows(2).all(|pair| pair[0] < pair[1]),
                "{name}: {bounds:?}"
            );
            assert!((1..=64).contains(&bounds.len()), "{name}: {bounds:?}");
        }
    }

    #[test]
    fn only_the_bounds_of_named_histograms_are_replaced() {
        let bounds = BucketBounds::replacing([("overhead_seconds", &[1.0, 2.0][..])]);
        assert_eq!(*bounds.of("overhead_seconds").0, [1.0, 2.0]);
        assert_eq!(*bounds.of("stage_seconds").0, *STAGES);
    }
}
