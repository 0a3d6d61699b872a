//! Traces of requests: W3C context, sampling, notes of a request, and their spans as OTLP messages.
//!
//! A traced request takes notes ([`RequestTrace`]): times, workers and verdicts, but no attributes. At the end of a
//! request that is exported, the notes go into the bounded [`TraceQueue`]. The exporter's thread makes spans of them
//! ([`QueuedTrace::spans`]). A shadow's decision has a trace of its own ([`ShadowTrace`]).
//! The crate has no HTTP. No note has prompt text, a key, a header or a query.

mod context;
mod ids;
mod names;
mod notes;
pub mod otlp;
mod queue;
mod sampling;
mod shadow;
mod span_builder;
mod spans;

pub use context::{SpanId, TRACEPARENT_BYTES, TraceId, TraceParent};
pub use ids::IdSource;
pub use names::{SCHEMA_URL, SCOPE};
pub use notes::{
    AttemptNote, AttemptTimes, CalledPolicyNote, ClockReading, DecisionNote, EndKind, GivenAnswer,
    GivenParams, LegKind, QueueNote, ReadNote, RequestEnd, RequestFacts, RequestTrace, RouteNote,
    StageTotals, TokenUsage, TokensNote, TraceIdentity,
};
pub use queue::{QueueLimits, QueuedTrace, TraceBatch, TraceQueue};
pub use sampling::{ForcedBudget, SamplingRule};
pub use shadow::ShadowTrace;
pub use spans::request_spans;
