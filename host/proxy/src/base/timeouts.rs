//! Limits of requests, and the timeouts that a pool overrides.

use std::time::Duration;

/// Size limit, timeouts and attempts of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Maximum size of a request body in bytes.
    pub body_bytes: usize,
    /// Time limit to connect to a worker.
    pub connect_timeout: Duration,
    /// Time limit from sending a request to the first byte of its response.
    pub first_byte_timeout: Duration,
    /// The same for the first byte of a streamed body. `None`: the same limit.
    pub first_token_timeout: Option<Duration>,
    /// Idle timeout within a body, from the client or from the worker.
    pub idle_timeout: Duration,
    /// Time limit from the request head to the end of the response. `None`: unlimited.
    pub request_timeout: Option<Duration>,
    /// Maximum attempts per request.
    pub attempts: u32,
}

/// Timeouts that a pool overrides. `None` keeps the general limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTimeouts {
    /// Time limit to connect to a worker.
    pub connect: Option<Duration>,
    /// Time limit from the dispatch to the response head.
    pub first_byte: Option<Duration>,
    /// Time limit from the dispatch to the first byte of a streamed body. `None`: the limit of the head.
    pub first_token: Option<Duration>,
    /// Idle timeout within a response.
    pub idle: Option<Duration>,
    /// Time limit from the request head to the end of the response. An inner `None` means unlimited.
    pub request: Option<Option<Duration>>,
}

impl PoolTimeouts {
    /// Applies the overrides to the general limits.
    pub(crate) fn over(self, limits: RequestLimits) -> RequestLimits {
        RequestLimits {
            connect_timeout: self.connect.unwrap_or(limits.connect_timeout),
            first_byte_timeout: self.first_byte.unwrap_or(limits.first_byte_timeout),
            first_token_timeout: self.first_token.or(limits.first_token_timeout),
            idle_timeout: self.idle.unwrap_or(limits.idle_timeout),
            request_timeout: self.request.unwrap_or(limits.request_timeout),
            ..limits
        }
    }
}
