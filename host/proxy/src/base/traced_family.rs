//! Family of histograms that keep exemplars.

use std::hash::Hash;

use observability::{ExemplarBook, TracedHistogram};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;

use crate::base::buckets::{BucketBounds, Buckets};
use crate::base::metric_labels::TimesFamily;

/// Prefix of the names on the page.
const PREFIX: &str = "conductor";

/// Histograms by label set, with their slots for exemplars.
#[derive(Debug, Clone)]
pub(crate) struct TracedFamily<L> {
    pub(crate) family: TimesFamily<L>,
    name: &'static str,
    buckets: Buckets,
    book: ExemplarBook,
}

impl<L: Clone + Hash + Eq + EncodeLabelSet> TracedFamily<L> {
    /// Creates a family by its name without prefix.
    pub(crate) fn new(name: &'static str, bounds: &BucketBounds, book: &ExemplarBook) -> Self {
        let buckets = bounds.of(name);
        Self {
            family: Family::new_with_constructor(buckets.clone()),
            name,
            buckets,
            book: book.clone(),
        }
    }

    /// Returns the histogram of a label set. `labels` are the same labels in their order.
    pub(crate) fn histogram(&self, label_set: &L, labels: &[(&str, &str)]) -> TracedHistogram {
        let histogram = self.family.get_or_create_owned(label_set);
        let name = format!("{PREFIX}_{}", self.name);
        self.book.attach(&name, labels, histogram, self.buckets.bounds())
    }
}
