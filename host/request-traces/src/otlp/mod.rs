//! Messages of OTLP trace v1, which is frozen: the parts that the router sends and receives.
//!
//! Field numbers are those of `opentelemetry/proto/trace/v1/trace.proto` and
//! `opentelemetry/proto/collector/trace/v1/trace_service.proto`.

mod common;
mod service;
mod trace;

pub use common::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, Resource, Value};
pub use service::{ExportResponse, PartialSuccess, TraceRequest};
pub use trace::{ResourceSpans, ScopeSpans, Span, SpanEvent, SpanKind, SpanLink, SpanStatus, StatusCode};

pub use prost::Message;
