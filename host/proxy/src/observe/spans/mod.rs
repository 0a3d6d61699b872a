//! Traces of requests, taken on the request's thread and handed to the exporter at the end.
//!
//! While traces are off, the handles are empty, and each use of one is a check. While they are on, a sampled request
//! takes notes (`open_trace.rs`). For any other each note is a check as well: it keeps its ids, and numbers that are at
//! hand. It takes notes from its first failure on, and is exported at its end if it was remarkable. No note is an
//! attribute yet.

mod attempt;
mod handle;
mod labels;
mod open_trace;
mod shadow;

use std::sync::Arc;

use request_traces::{ForcedBudget, IdSource, SamplingRule, TraceQueue};

pub(crate) use self::attempt::AttemptSpan;
pub(crate) use self::handle::{SpanHandle, SpanStart};
pub(crate) use self::open_trace::SpanEnd;
pub(crate) use self::shadow::ShadowDecision;

/// Settings of traces.
#[derive(Debug)]
pub struct TracingSpec {
    /// Queue to the exporter.
    pub queue: Arc<TraceQueue>,
    /// Source of ids.
    pub ids: IdSource,
    /// Rule of sampling.
    pub rule: SamplingRule,
    /// Rate limiter of sampling that clients force.
    pub forced: ForcedBudget,
}
