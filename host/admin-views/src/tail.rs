//! Tail of the recorded requests: those that are new or changed since the last look.

use std::collections::HashMap;
use std::sync::Arc;

use decision_log::{RequestSummary, Trace, TraceMark};

/// Most requests of one look. Older ones are left out.
pub const TAIL_ROWS: usize = 50;
/// Most requests that a look compares.
pub const TAIL_REACH: usize = 2_000;

/// Marks of the requests at the last look.
#[derive(Debug, Default)]
pub struct RequestTail(HashMap<u64, TraceMark>);

impl RequestTail {
    /// Returns the requests that are new or changed, oldest first. `traces` are sorted from new to old.
    pub fn look(&mut self, traces: &[Arc<Trace>]) -> Vec<RequestSummary> {
        let mut next = HashMap::new();
        let mut changed = Vec::new();
        for trace in traces.iter().take(TAIL_REACH) {
            let (seq, mark) = (trace.seq(), trace.mark());
            if self.0.get(&seq) != Some(&mark) && changed.len() < TAIL_ROWS {
                changed.push(trace.summary());
            }
            next.insert(seq, mark);
        }
        self.0 = next;
        changed.reverse();
        changed
    }

    /// Returns the latest requests, oldest first.
    #[must_use]
    pub fn latest(traces: &[Arc<Trace>]) -> Vec<RequestSummary> {
        let latest = traces.iter().take(TAIL_ROWS).rev();
        latest.map(|trace| trace.summary()).collect()
    }
}
