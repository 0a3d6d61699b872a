//! Observation of one request of an arm, from its response status to its end.

use std::time::Duration;

/// Result of a request that counts for its arm.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestResult {
    /// Time to first token in seconds. For a client that left a stream earlier its waiting time, a lower bound.
    pub ttft: Option<f64>,
    /// Set if the request failed. `None` if the client or the router caused the end.
    pub failed: Option<bool>,
    /// Time between tokens in seconds.
    pub between: Option<f64>,
    /// Prompt tokens and cached prompt tokens, if the worker reported both.
    pub cached: Option<(u64, u64)>,
}

/// End of a request, as far as its arm is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// The response is complete.
    Complete,
    /// The client disconnected.
    ClientLeft,
    /// The worker, the pool or the policy failed.
    Failed,
    /// The client or the router caused it.
    NotCounted,
}

/// Observer of one request of an arm.
#[derive(Debug)]
pub struct RequestObserver {
    /// Set if the client requested a stream.
    streams: bool,
    /// Set if the response status counts as failed.
    is_error_status: bool,
    first_token: Option<Duration>,
    /// Chunks of the response body.
    chunks: u64,
    output_tokens: Option<u64>,
    cached: Option<(u64, u64)>,
}

impl RequestObserver {
    /// Creates an observer. `streams` is whether the client requested a stream.
    #[must_use]
    pub fn new(streams: bool) -> Self {
        Self {
            streams,
            is_error_status: false,
            first_token: None,
            chunks: 0,
            output_tokens: None,
            cached: None,
        }
    }

    /// Records the response status. 429 and 5xx count as failed; other errors concern the request itself.
    pub fn answered(&mut self, status: u16) {
        self.is_error_status = status == 429 || (500..600).contains(&status);
    }

    /// Records the time from the request head to the first byte of a streamed response.
    pub fn first_token(&mut self, after: Duration) {
        self.first_token = Some(after);
    }

    /// Records a chunk of the response.
    pub fn chunk(&mut self) {
        self.chunks += 1;
    }

    /// Records the token counts of a complete response: output tokens, and prompt tokens with the cached ones.
    pub fn usage(&mut self, output_tokens: Option<u64>, cached: Option<(u64, u64)>) {
        self.output_tokens = output_tokens;
        self.cached = cached;
    }

    /// Returns the time to the first byte of a streamed response in seconds.
    #[must_use]
    pub fn ttft(&self) -> Option<f64> {
        self.first_token.map(|first| first.as_secs_f64())
    }

    /// Returns the result of a request that ended `after` its head arrived.
    #[must_use]
    pub fn result(&self, end: RequestEnd, after: Duration) -> RequestResult {
        let first = self.ttft();
        let left_waiting = end == RequestEnd::ClientLeft && self.streams && first.is_none();
        RequestResult {
            ttft: first.or_else(|| left_waiting.then_some(after.as_secs_f64())),
            failed: match end {
                RequestEnd::Complete => Some(self.is_error_status),
                RequestEnd::Failed => Some(true),
                RequestEnd::ClientLeft | RequestEnd::NotCounted => None,
            },
            between: self.between(end, after),
            cached: self.cached,
        }
    }

    /// Returns the time between tokens: from the first byte to the end, divided by the tokens after the first.
    ///
    /// Without reported tokens each chunk counts as one, because engines send one event per token.
    fn between(&self, end: RequestEnd, after: Duration) -> Option<f64> {
        let first = self.first_token.filter(|_| end == RequestEnd::Complete)?;
        let more = self.output_tokens.unwrap_or(self.chunks).checked_sub(1)?;
        (more > 0).then(|| after.saturating_sub(first).as_secs_f64() / more as f64)
    }
}
