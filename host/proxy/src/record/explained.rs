//! A recorded request as it is explained: what the log has of it, with nothing to look up.

use std::sync::Arc;

use super::call_note::worker_line;
use super::line::{DecisionLine, OutcomeLine, PolicyLine, WorkerLine};
use super::trace::{Record, Trace};

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Its id.
    pub request: String,
    /// Its number.
    pub seq: u64,
    /// Its calls, in order.
    pub calls: Vec<ExplainedCall>,
    /// Calls after those, or for which there was no room.
    pub left_out: usize,
    /// How it ended; none while it goes on.
    pub outcome: Option<OutcomeLine>,
}

/// One call of a policy, or of the fallback.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedCall {
    /// Who was asked.
    pub policy: PolicyLine,
    /// The candidates, row by row.
    pub workers: Vec<WorkerLine>,
    /// What it was asked and answered.
    pub decision: DecisionLine,
}

impl Explained {
    pub(super) fn of(trace: &Trace) -> Self {
        let (calls, left_out, outcome): (Vec<Arc<Record>>, _, _) = {
            let story = trace.story();
            (story.calls.clone(), story.left_out, story.outcome.clone())
        };
        let calls = calls.iter().zip(1..).map(|(record, number)| ExplainedCall {
            policy: record.call.subject.line(number),
            workers: record.call.workers.iter().map(worker_line).collect(),
            decision: record.call.line(trace, number),
        });
        Self {
            request: trace.id.clone(),
            seq: trace.seq,
            calls: calls.collect(),
            left_out,
            outcome,
        }
    }
}
