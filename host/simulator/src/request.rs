//! Traces: requests with their lengths, arrivals and prefixes, without text.

use std::sync::Arc;

/// Requests in the order of their arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Shown in reports.
    pub name: String,
    /// Prompt tokens of a block.
    pub block_tokens: u32,
    /// Requests, sorted by `at_us`.
    pub requests: Vec<Request>,
}

/// A request of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Microseconds from the start of the trace. Without [`after`](Self::after) it arrives then.
    pub at_us: u64,
    /// Length of the prompt in tokens; at least 1.
    pub prompt_tokens: u32,
    /// Length of the answer in tokens; at least 1.
    pub output_tokens: u32,
    /// Ids of the blocks of the prompt, the last of which may be part of one. If two requests have the same id, their
    /// prompts are the same up to the end of that block.
    pub blocks: Box<[u64]>,
    /// Ids of all complete blocks of the prompt and its answer, if those of the answer are known: later prompts that
    /// repeat both have them. Otherwise empty, and the answer is not cached.
    pub grown_blocks: Box<[u64]>,
    /// Requests of a conversation share it.
    pub session: Option<u64>,
    /// The answer that its client read before it sent this, if that is known.
    pub after: Option<AfterAnswer>,
    /// Number of its tenant, if the trace has tenants ([`Trace::assign_tenants`]).
    pub tenant: Option<u32>,
    /// Requested model; empty in a trace without models.
    pub model: Arc<str>,
}

/// Arrival of a request after an earlier one, whose answer its client read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterAnswer {
    /// Index of the earlier request.
    pub request: usize,
    /// Microseconds from the end of that one to the arrival.
    pub pause_us: u64,
}

impl Trace {
    /// Returns the time from the first arrival to the last, in microseconds.
    #[must_use]
    pub fn duration_us(&self) -> u64 {
        match (self.requests.first(), self.requests.last()) {
            (Some(first), Some(last)) => last.at_us - first.at_us,
            _ => 0,
        }
    }

    /// Returns the trace with all arrivals at their recorded times, whenever earlier answers end.
    #[must_use]
    pub fn at_recorded_times(mut self) -> Self {
        for request in &mut self.requests {
            request.after = None;
        }
        self
    }
}
