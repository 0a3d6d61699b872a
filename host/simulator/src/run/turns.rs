//! Requests that arrive after the end of an earlier one of their conversation.

use std::collections::HashMap;

use crate::request::Trace;

/// Later requests and their pauses in microseconds, by the earlier one.
#[derive(Debug, Default)]
pub(super) struct LaterTurns(HashMap<usize, Vec<LaterTurn>>);

/// A request that arrives after an earlier one.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaterTurn {
    pub(super) request: usize,
    /// Time from the end of the earlier one to the arrival.
    pub(super) pause_us: u64,
}

impl LaterTurns {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut later: HashMap<usize, Vec<LaterTurn>> = HashMap::new();
        for (request, of) in trace.requests.iter().enumerate() {
            if let Some(after) = of.after {
                let pause_us = after.pause_us;
                let turns = later.entry(after.request).or_default();
                turns.push(LaterTurn { request, pause_us });
            }
        }
        Self(later)
    }

    /// Removes and returns the requests that arrive after the end of this one.
    pub(super) fn after(&mut self, request: usize) -> Vec<LaterTurn> {
        self.0.remove(&request).unwrap_or_default()
    }
}
