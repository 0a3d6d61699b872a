//! Observation of one request on its way to a worker: its stage times, its record in the access log, and its notes
//! for a trace.

use std::time::Instant;

use crate::observe::access::AccessHandle;
use crate::observe::spans::SpanHandle;
use crate::observe::stages::{RequestStage, StageClock};

/// Observation of one request. Its decisions and attempts add to it.
#[derive(Debug)]
pub(crate) struct RequestWatch {
    /// Record of the request in the access log.
    pub(crate) access: AccessHandle,
    /// Notes for the request's trace.
    pub(crate) spans: SpanHandle,
    /// Times of the stages before the answer.
    pub(crate) stages: StageClock,
}

impl RequestWatch {
    /// Starts at the arrival of a request.
    pub(crate) fn start(arrived: Instant, access: AccessHandle, spans: SpanHandle) -> Self {
        Self {
            access,
            spans,
            stages: StageClock::start(arrived),
        }
    }

    /// Records the time since `started` as a part of a stage. Returns the end of that time.
    pub(crate) fn took(&self, stage: RequestStage, started: Instant) -> Instant {
        let ended = Instant::now();
        let time = ended.saturating_duration_since(started);
        self.stages.add(stage, time);
        self.access.took(stage, time);
        self.spans.took(stage, started);
        ended
    }
}
