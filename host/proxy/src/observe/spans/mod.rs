//! Notes of a request for its trace: taken on the request's thread, and handed to the exporter at the end.
//!
//! While traces are off, the handles are empty, and each use of one is a check. Otherwise a request takes notes whether
//! it is sampled or not, because it may be exported at its end. No note is an attribute yet.

mod attempt;
mod handle;

use std::sync::Arc;

use request_traces::{ForcedBudget, IdSource, SamplingRule, TraceQueue};

pub(crate) use self::attempt::AttemptSpan;
pub(crate) use self::handle::{SpanHandle, SpanStart};

/// Settings of traces.
#[derive(Debug)]
pub struct TracingSpec {
    /// Queue to the exporter.
    pub queue: Arc<TraceQueue>,
    /// Source of ids.
    pub ids: IdSource,
    /// Rule of sampling.
    pub rule: SamplingRule,
    /// Budget of the requests that are sampled at the wish of their clients.
    pub forced: ForcedBudget,
}
