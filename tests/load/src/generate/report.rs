//! Report of a generator run.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Failure};
use crate::statistics::Histogram;

/// Counts and latencies of the measured window.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Requests answered with 200 within the window.
    pub requests: u64,
    /// Events of streams, one per token, that came within the window.
    pub tokens: u64,
    /// Length of the window.
    pub elapsed: Duration,
    /// Time from when a request was due to the end of its reply.
    pub latency: Histogram,
    /// Time from when a request was due to the first byte of its reply's body.
    pub first_byte: Histogram,
    /// Failures within the window.
    pub errors: Errors,
    /// Requests that were due and not answered when the window closed. About the number of connections in a closed
    /// loop; in an open loop, many are a backlog that the latencies do not show yet.
    pub unanswered: u64,
    /// Streams that had begun and not ended when the window closed.
    pub open_streams: u64,
}

/// Failed requests by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Errors {
    /// Connections that could not be made.
    pub connect: u64,
    /// Replies with another status than 200.
    pub status: u64,
    /// Connections that ended before the reply did.
    pub broken: u64,
    /// Replies that are not HTTP/1.1 with a length or chunks.
    pub malformed: u64,
    /// Requests that were given up.
    pub timed_out: u64,
}

impl Errors {
    /// Returns all of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.connect + self.status + self.broken + self.malformed + self.timed_out
    }

    pub(super) fn count(&mut self, failure: Failure) {
        match failure {
            Failure::Broken => self.broken += 1,
            Failure::Malformed => self.malformed += 1,
        }
    }
}

impl Report {
    pub(super) fn count(&mut self, answer: &Answer) {
        if answer.status != 200 {
            self.errors.status += 1;
            return;
        }
        self.requests += 1;
        // The last event of a stream is `[DONE]`.
        self.tokens = self.tokens.saturating_sub(u64::from(answer.streamed));
        self.latency.record(answer.latency);
        self.first_byte.record(answer.first_byte);
    }

    /// Returns the number of answers, tokens and failures.
    pub(super) fn events(&self) -> u64 {
        self.requests + self.tokens + self.errors.total()
    }

    /// Returns the requests answered per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the report as JSON: durations in microseconds unless named otherwise, `null` without values.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "requests": self.requests,
            "requests_per_second": self.rate(),
            "tokens": self.tokens,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "latency_p50_us": self.latency.micros(0.5),
            "latency_p99_us": self.latency.micros(0.99),
            "first_byte_p50_us": self.first_byte.micros(0.5),
            "first_byte_p99_us": self.first_byte.micros(0.99),
            "unanswered": self.unanswered,
            "open_streams": self.open_streams,
            "errors": {
                "connect": self.errors.connect,
                "status": self.errors.status,
                "broken": self.errors.broken,
                "malformed": self.errors.malformed,
                "timed_out": self.errors.timed_out,
            },
        })
    }

    /// Returns the report as a few lines of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let micros =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |micros| format!("{micros:.0}"));
        let mut text = format!(
            "{} requests in {:.2} s: {:.0} req/s\nlatency us: p50 {}, p99 {}; first byte: p50 {}, p99 {}\n",
            self.requests,
            self.elapsed.as_secs_f64(),
            self.rate(),
            micros(self.latency.micros(0.5)),
            micros(self.latency.micros(0.99)),
            micros(self.first_byte.micros(0.5)),
            micros(self.first_byte.micros(0.99)),
        );
        if self.tokens > 0 {
            text += &format!(
                "{:.0} tokens/s\n",
                self.tokens as f64 / self.elapsed.as_secs_f64()
            );
        }
        let Errors {
            connect,
            status,
            broken,
            malformed,
            timed_out,
        } = self.errors;
        text += &format!(
            "errors: {} (connect {connect}, status {status}, broken {broken}, malformed {malformed}, timed out \
             {timed_out}); unanswered at the end: {}\n",
            self.errors.total(),
            self.unanswered,
        );
        text
    }
}
