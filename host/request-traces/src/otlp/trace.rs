//! Spans.

use super::common::{InstrumentationScope, KeyValue, Resource};

/// Spans of one process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// Spans by scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// Spans of one scope.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeSpans {
    /// The scope.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
    /// Revision of the conventions for names.
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// Span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Span {
    /// Id of the trace, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Id, 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// Id of the parent, empty for a root.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Name.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Kind.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Begin, in nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// End, in nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Attributes.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Events.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<SpanEvent>,
    /// Links to other spans.
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<SpanLink>,
    /// Status.
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
    /// W3C trace flags, and whether the parent is remote.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not stated.
    Unspecified = 0,
    /// Work within a process.
    Internal = 1,
    /// Request that was received.
    Server = 2,
    /// Request that was sent.
    Client = 3,
}

/// Event of a span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpanEvent {
    /// Time, in nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Attributes.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// Link to another span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpanLink {
    /// Id of its trace.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its id.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

/// Status of a span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpanStatus {
    /// Description of an error.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Code.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// Code of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Not stated.
    Unset = 0,
    /// No error.
    Ok = 1,
    /// Error.
    Error = 2,
}
