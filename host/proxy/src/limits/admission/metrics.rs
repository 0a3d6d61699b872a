//! Metrics of admission: results, queue lengths, usage of budgets.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::base::metric_labels::{PoolLabel, TimesFamily};

/// Admission result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    AtOnce,
    /// Queued for the budget. Unless it is admitted then, its end is counted as well.
    AfterWaiting,
    QueueFull,
    TimedOut,
    Shed,
    TooSlow,
}

/// Every kind in the order of its discriminant, with its label.
const RESULTS: [(Admitted, &str); 6] = [
    (Admitted::AtOnce, "at-once"),
    (Admitted::AfterWaiting, "held"),
    (Admitted::QueueFull, "queue-full"),
    (Admitted::TimedOut, "timed-out"),
    (Admitted::Shed, "shed"),
    (Admitted::TooSlow, "rejected-early"),
];

/// The kinds of classes, in the order of [`routing::ClassCounts`].
pub(crate) const CLASSES: [&str; 3] = ["sheddable", "standard", "preferred"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolResultLabel {
    pool: String,
    result: &'static str,
}

/// The metrics of all pools.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionFamilies {
    results: Family<PoolResultLabel, Counter>,
    comments: Family<PoolLabel, Counter>,
    waits: TimesFamily<PoolLabel>,
}

impl AdmissionFamilies {
    pub(crate) fn new(bounds: &BucketBounds) -> Self {
        Self {
            results: Family::default(),
            comments: Family::default(),
            waits: Family::new_with_constructor(bounds.of("queue_wait_seconds")),
        }
    }
}

/// Handles of one pool.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    results: [Counter; RESULTS.len()],
    /// Lifetime of a queue entry in seconds.
    pub(super) waited: Histogram,
}

impl AdmissionFamilies {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "admission",
            "Requests by admission result, in pools with budgets or held requests; a held request that is not admitted counts twice",
            self.results.clone(),
        );
        registry.register(
            "keep_alive_comments",
            "Keep-alive comments on idle streams",
            self.comments.clone(),
        );
        registry.register(
            "queue_wait_seconds",
            "Queue wait of held requests",
            self.waits.clone(),
        );
    }

    /// Returns the metrics of a pool's budget and queue.
    pub(crate) fn pool(&self, pool: &str) -> AdmissionMetrics {
        let of = |result| PoolResultLabel {
            pool: pool.to_owned(),
            result,
        };
        AdmissionMetrics {
            results: RESULTS.map(|(_, label)| self.results.get_or_create_owned(&of(label))),
            waited: self.waits.get_or_create_owned(&PoolLabel::of(pool)),
        }
    }

    /// Returns the counter of one pool's comments.
    pub(crate) fn comments(&self, pool: &str) -> Counter {
        self.comments.get_or_create_owned(&PoolLabel::of(pool))
    }
}

impl AdmissionMetrics {
    pub(super) fn count(&self, result: Admitted) {
        self.results[result as usize].inc();
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
