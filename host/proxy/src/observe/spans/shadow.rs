//! Spans of shadows' decisions about a sampled request, each a trace of its own.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use request_traces::{ClockReading, QueuedTrace, ShadowTrace, TraceIdentity};
use routing::WorkerSpec;

use super::TracingSpec;

/// Mark in the number of a request, by which shadows have ids of their own.
const SHADOW: u64 = 1 << 63;

/// Maker of the spans of shadows.
#[derive(Debug)]
pub(crate) struct ShadowSpans<'a> {
    spec: &'a Arc<TracingSpec>,
    about: TraceIdentity,
    seq: u64,
}

/// Decision of a shadow.
#[derive(Debug)]
pub(crate) struct ShadowDecision<'a> {
    /// Number of the shadow in its route.
    pub(crate) number: usize,
    pub(crate) policy: &'a str,
    /// Version that was called.
    pub(crate) version: Option<&'a Arc<str>>,
    pub(crate) took: Duration,
    /// Comparison with the placement that was made.
    pub(crate) result: &'static str,
    /// Worker that the shadow chose.
    pub(crate) worker: Option<Arc<WorkerSpec>>,
}

impl<'a> ShadowSpans<'a> {
    pub(super) fn new(spec: &'a Arc<TracingSpec>, about: TraceIdentity, seq: u64) -> Self {
        Self { spec, about, seq }
    }

    /// Hands the trace of a decision that has just ended to the exporter.
    pub(crate) fn add(&self, decision: &ShadowDecision<'_>) {
        let ended = Instant::now();
        // The numbers of a request's shadows are far below 2^16, and those of requests below 2^47.
        let seq = SHADOW | self.seq << 16 | decision.number as u64;
        // Counted where there is no room.
        self.spec.queue.push(QueuedTrace::Shadow(Box::new(ShadowTrace {
            trace: self.spec.ids.trace(seq),
            span: self.spec.ids.span(seq, 0),
            about: (self.about.trace, self.about.span),
            clock: ClockReading {
                instant: ended,
                system: SystemTime::now(),
            },
            began: ended.checked_sub(decision.took).unwrap_or(ended),
            ended,
            policy: decision.policy.into(),
            version: decision.version.map(Arc::clone),
            result: decision.result,
            worker: decision.worker.clone(),
        })));
    }
}
