//! Bookings of requests in flight: the server's own leases, in virtual time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use routing::LoadLease;

use super::index::TracePrompt;

/// Share of a request at one worker.
#[derive(Debug)]
pub(super) struct WorkerShare {
    pub(super) worker: usize,
    lease: LoadLease,
    pub(super) dispatched_us: u64,
    first_us: Option<u64>,
}

impl WorkerShare {
    pub(super) fn new(worker: usize, lease: LoadLease, dispatched_us: u64) -> Self {
        Self {
            worker,
            lease,
            dispatched_us,
            first_us: None,
        }
    }

    /// Records the first token, or the end of the prefill leg. Returns the milliseconds since the dispatch; `None`
    /// where that is known already.
    pub(super) fn first_token(&mut self, now_us: u64) -> Option<f64> {
        if self.first_us.replace(now_us).is_some() {
            return None;
        }
        let after_us = now_us.saturating_sub(self.dispatched_us);
        self.lease.first_token(Duration::from_micros(after_us));
        Some(after_us as f64 / 1e3)
    }

    /// Records how many tokens of the prompt the engine did not compute.
    pub(super) fn prompt_cached(&mut self, tokens: u32) {
        self.lease.prompt_cached(|| Some(tokens.into()));
    }

    /// Records the complete answer.
    pub(super) fn decoded(&self, tokens: u64, now_us: u64) {
        if let Some(first_us) = self.first_us {
            let since_us = now_us.saturating_sub(first_us);
            self.lease.decoded(tokens, Duration::from_micros(since_us));
        }
    }

    /// Milliseconds since the dispatch.
    pub(super) fn after_ms(&self, now_us: u64) -> f64 {
        now_us.saturating_sub(self.dispatched_us) as f64 / 1e3
    }
}

/// Booking of a request in flight.
#[derive(Debug)]
pub(super) struct Booking {
    pub(super) prompt_tokens: u32,
    pub(super) session: Option<u64>,
    /// Share of the worker that answers.
    pub(super) answers: WorkerShare,
    /// Share of the worker that computes the prompt for it, until it has.
    pub(super) prefills: Option<WorkerShare>,
    /// Prompt that the worker which answers takes over once the other has computed it.
    pub(super) handed: Option<Arc<TracePrompt>>,
}

/// All of them, by the request's place in the trace. Looked up only: nothing depends on their order.
pub(super) type Bookings = HashMap<usize, Booking>;
