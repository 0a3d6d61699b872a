//! Explanation of a recorded request: its log lines with all references resolved.

use std::sync::Arc;

use crate::call::worker_line;
use crate::line::{DecisionLine, OutcomeLine, PolicyLine, WorkerLine};
use crate::stages::{self, StageSpan};
use crate::trace::{Record, Trace};

/// Recorded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Request id.
    pub request: String,
    /// Sequence number.
    pub seq: u64,
    /// Policy calls in order.
    pub calls: Vec<ExplainedCall>,
    /// Number of calls that were not kept: over the limit, or without memory.
    pub left_out: usize,
    /// Outcome. `None` during the request.
    pub outcome: Option<OutcomeLine>,
    /// Stages of the request, as far as they are known.
    pub stages: Vec<StageSpan>,
}

/// One call of a policy or of the fallback.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedCall {
    /// The called policy.
    pub policy: PolicyLine,
    /// Candidates in row order.
    pub workers: Vec<WorkerLine>,
    /// Inputs and result of the call.
    pub decision: DecisionLine,
}

impl Explained {
    /// Formats a trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        let (calls, left_out, outcome): (Vec<Arc<Record>>, _, _) = {
            let progress = trace.progress();
            (
                progress.calls.clone(),
                progress.left_out,
                progress.outcome.clone(),
            )
        };
        let calls = calls.iter().zip(1..).map(|(record, number)| ExplainedCall {
            policy: record.call.subject.line(number),
            workers: record.call.workers.iter().map(worker_line).collect(),
            decision: record.call.line(&trace.request, number),
        });
        Self {
            request: trace.request.id.clone(),
            seq: trace.request.seq,
            calls: calls.collect(),
            left_out,
            outcome,
            stages: stages::of(trace),
        }
    }
}
