//! Encoding of a batch: notes to spans, spans to the body of a request.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use request_traces::otlp::{
    InstrumentationScope, Message, Resource, ResourceSpans, ScopeSpans, TraceRequest,
};
use request_traces::{QueuedTrace, SCHEMA_URL, SCOPE};

/// Encodes a batch of traces.
pub(crate) fn encode(traces: &[QueuedTrace], resource: &Resource) -> Bytes {
    let spans = traces.iter().flat_map(QueuedTrace::spans).collect();
    let request = TraceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: SCOPE.to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                spans,
                schema_url: SCHEMA_URL.to_owned(),
            }],
        }],
    };
    request.encode_to_vec().into()
}

/// Compresses a body.
///
/// # Errors
/// Never: it is written to memory.
pub(crate) fn compress(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish().map(Bytes::from)
}
