//! Request and response of an export.

use super::trace::ResourceSpans;

/// Request of an export.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TraceRequest {
    /// Spans by process.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Response to an export.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportResponse {
    /// Set if the collector rejected a part of the spans, or has a warning.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// Part of an export that was rejected.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    /// Number of rejected spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Reason.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
