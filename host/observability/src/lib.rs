//! Helpers for logs and metrics that several crates of the host use.

mod error_chain;
mod metric_page;
mod plain_text;

pub use error_chain::error_chain;
pub use metric_page::MetricPage;
pub use plain_text::plain_text;
