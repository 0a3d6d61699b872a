//! Verdicts of policies, not yet checked: see `check.rs`.

use crate::id::WorkerId;

/// A policy's answer to one call, not yet checked against the candidates it was given.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Send the request to a candidate.
    Route(Choice),
    /// Hold it in the router's queue and decide again.
    Queue(Hold),
    /// Answer the client with an error.
    Reject(Rejection),
    /// No opinion: the fallback decides.
    Pass,
}

/// A candidate chosen by row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Row of the worker that answers the client.
    pub row: u32,
    /// Row of a separate prefill worker, in a disaggregated pool.
    pub prefill: Option<u32>,
    /// The policy's own figure of merit; NaN when it has none.
    pub score: f64,
}

/// Terms on which a request is held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    /// Ascending order among the requests held for one pool.
    pub order: f64,
    /// Longest time until the next decision, in milliseconds.
    pub ask_again_ms: u32,
    /// The worker that it waits for; none: any.
    pub waits_for: Option<WaitsFor>,
}

impl Hold {
    /// Returns the worker that the request waits for among the candidates in row order, and its work there.
    #[must_use]
    pub fn awaited(&self, candidates: &[WorkerId]) -> Option<(WorkerId, u32)> {
        let waits = self.waits_for?;
        let worker = candidates.get(waits.row as usize)?;
        Some((*worker, waits.work))
    }
}

/// The candidate that a held request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitsFor {
    /// Row.
    pub row: u32,
    /// The request's work there, in the policy's unit.
    pub work: u32,
}

/// Terms on which a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status, 400 to 599 once checked.
    pub status: u16,
    /// Value of `Retry-After`; 0 for none.
    pub retry_after_ms: u32,
    /// Shown to the client.
    pub reason: String,
}
