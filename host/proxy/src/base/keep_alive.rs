//! Settings of keep-alive comments on idle streams.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

/// Idle time after which a pool's streams get a comment.
#[derive(Debug, Clone)]
pub(crate) struct KeepAlive {
    pub(crate) every: Duration,
    /// Number of comments.
    pub(crate) comments: Counter,
}
