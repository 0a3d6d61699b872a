//! Limits of requests and connections of clients, applied before a request is parsed.

use std::time::Duration;

use inference_api::Peek;

use crate::base::reply::Refusal;
use crate::limits::bodies::BodyPace;

/// Limits of every request and connection of a client. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Maximum of a request's headers: names and values together.
    pub header_bytes: usize,
    /// Maximum number of a request's headers, at most 100.
    pub headers: usize,
    /// Maximum of path and query.
    pub url_bytes: usize,
    /// Maximum nesting of arrays and objects.
    pub json_depth: usize,
    /// Timeout from the beginning of a connection to the end of the first head, TLS included.
    pub head_timeout: Duration,
    /// Keep-alive timeout from the end of a response to the end of the next head.
    pub keep_alive_timeout: Duration,
    /// Time that any body may take.
    pub body_grace: Duration,
    /// Minimum rate: one second is added for each so many bytes; 0 disables the timeout.
    pub body_rate: u64,
    /// Maximum of response ids with a known worker; 0 keeps none.
    pub response_ids: usize,
    /// Lifetime of such an id.
    pub response_ttl: Duration,
}

/// Limits of the table of response ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseLimits {
    /// Most ids that are kept. 0: none is kept.
    pub(crate) most: usize,
    /// Lifetime of an id.
    pub(crate) ttl: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            header_bytes: 64 << 10,
            headers: 64,
            url_bytes: 8 << 10,
            json_depth: 128,
            head_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            body_grace: Duration::from_secs(30),
            body_rate: 1 << 10,
            response_ids: 100_000,
            response_ttl: Duration::from_hours(1),
        }
    }
}

impl EdgeLimits {
    /// Checks the nesting depth of a JSON body before it is parsed.
    pub(crate) fn check_depth(&self, peek: &Peek<'_>) -> Result<(), Refusal> {
        let limit = self.json_depth;
        if peek.is_deeper_than(limit) {
            return Err(Refusal::BodyTooDeep { limit });
        }
        Ok(())
    }

    /// Returns the limits of the table of response ids.
    pub(crate) fn responses(&self) -> ResponseLimits {
        ResponseLimits {
            most: self.response_ids,
            ttl: self.response_ttl,
        }
    }

    /// Returns the pace of a client's body, whose pieces may be `idle` apart.
    pub(crate) fn pace(&self, idle: Duration) -> BodyPace {
        BodyPace {
            idle,
            grace: self.body_grace,
            rate: self.body_rate,
        }
    }
}
