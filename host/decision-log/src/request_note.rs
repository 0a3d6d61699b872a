//! Facts of a recorded request, as its lines have them.

use std::time::{Duration, Instant, SystemTime};

/// Facts of a request that do not change while it is recorded.
#[derive(Debug)]
pub(crate) struct RequestNote {
    /// Request id, truncated.
    pub(crate) id: String,
    /// Sequence number.
    pub(crate) seq: u64,
    /// Model, truncated.
    pub(crate) model: String,
    /// Path.
    pub(crate) path: Box<str>,
    /// Name of the pool.
    pub(crate) pool: Box<str>,
    /// Route, counted from 1.
    pub(crate) route: usize,
    /// Tokens of the prompt, if known.
    pub(crate) prompt_tokens: Option<u32>,
    /// Arrival and preparation.
    pub(crate) start: StartTimes,
}

/// Times of a request before its first decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartTimes {
    /// Arrival of the head, on the monotonic clock.
    pub(crate) arrived: Instant,
    /// Arrival of the head, on the system's clock.
    pub(crate) arrived_at: SystemTime,
    /// Arrival to the start of the record, when the request can be placed.
    pub(crate) prepared: Duration,
    /// Part of it that tokenization took.
    pub(crate) tokens: Option<Duration>,
}

impl StartTimes {
    /// Returns the times of a request that can be placed now.
    pub(crate) fn since(arrived: Instant, tokens: Option<Duration>) -> Self {
        let prepared = arrived.elapsed();
        let now = SystemTime::now();
        Self {
            arrived,
            arrived_at: now.checked_sub(prepared).unwrap_or(now),
            prepared,
            tokens,
        }
    }
}
