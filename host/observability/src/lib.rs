//! Helpers for logs and metrics that several crates of the host use.

mod error_chain;
mod exemplars;
mod metric_page;
mod openmetrics;
mod plain_text;

pub use error_chain::error_chain;
pub use exemplars::{ExemplarBook, TracedHistogram};
pub use metric_page::MetricPage;
pub use openmetrics::openmetrics_page;
pub use plain_text::plain_text;
