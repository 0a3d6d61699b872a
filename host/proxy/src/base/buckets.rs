//! Histograms of the request path, with the buckets that their quantities need.

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Returns a histogram of prompt lengths: 16 to a million tokens.
pub(crate) fn prompt_lengths() -> Histogram {
    Histogram::new(exponential_buckets(16.0, 2.0, 17))
}

/// Returns a histogram of the times of requests: 1 ms to 9 minutes.
pub(crate) fn request_times() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

/// Returns a histogram of the times of decisions: 0.25 us to 8 ms.
pub(crate) fn decision_times() -> Histogram {
    Histogram::new(exponential_buckets(0.25e-6, 2.0, 16))
}
