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

/// Returns a histogram of the times of tokens: 1 ms to 5 s.
pub(crate) fn token_times() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
        0.5, 1.0, 2.5, 5.0,
    ])
}

/// Returns a histogram of the times of stages: 10 us to 30 s.
pub(crate) fn stage_times() -> Histogram {
    Histogram::new([
        0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05,
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}

/// Returns a histogram of the pauses of streams: 10 ms to 5 minutes.
pub(crate) fn pauses() -> Histogram {
    Histogram::new([
        0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
    ])
}

/// Returns a histogram of the candidates of decisions: 1 to 1,024.
pub(crate) fn candidate_counts() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 11))
}

/// Returns a histogram of the times of decisions: 0.25 us to 8 ms.
pub(crate) fn decision_times() -> Histogram {
    Histogram::new(exponential_buckets(0.25e-6, 2.0, 16))
}
