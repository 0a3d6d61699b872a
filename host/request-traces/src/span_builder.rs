//! Builder of one span.

use std::time::Instant;

use crate::context::SpanId;
use crate::names;
use crate::notes::{ClockReading, RequestTrace};
use crate::otlp::{KeyValue, Span, SpanEvent, SpanKind, SpanLink, SpanStatus, StatusCode, Value};
use crate::shadow::ShadowTrace;

/// Flag of a sampled span.
const SAMPLED: u32 = 1;
/// Flag of a span whose parent is known to be remote or not.
const HAS_REMOTE: u32 = 0x100;
/// Flag of a span whose parent is remote.
const IS_REMOTE: u32 = 0x200;

/// Span in the making.
pub(crate) struct SpanBuilder<'a> {
    clock: &'a ClockReading,
    span: Span,
}

impl<'a> SpanBuilder<'a> {
    /// Begins the span of a shadow's decision, with the link to its request.
    pub(crate) fn shadow(shadow: &'a ShadowTrace) -> Self {
        let (trace, span) = shadow.about;
        Self {
            clock: &shadow.clock,
            span: Span {
                trace_id: shadow.trace.bytes().to_vec(),
                span_id: shadow.span.bytes().to_vec(),
                name: names::SPAN_SHADOW.to_owned(),
                kind: SpanKind::Internal.into(),
                flags: HAS_REMOTE | SAMPLED,
                links: vec![SpanLink {
                    trace_id: trace.bytes().to_vec(),
                    span_id: span.bytes().to_vec(),
                }],
                ..Span::default()
            },
        }
    }

    /// Begins the span of the request itself.
    pub(crate) fn server(trace: &'a RequestTrace, name: String) -> Self {
        let ids = &trace.identity;
        let mut builder = Self::new(trace, ids.span, name, SpanKind::Server);
        builder.span.parent_span_id = ids.parent.map_or_else(Vec::new, |parent| parent.bytes().to_vec());
        if ids.parent.is_some() {
            builder.span.flags |= IS_REMOTE;
        }
        builder
    }

    /// Begins a span below that of the request.
    pub(crate) fn child(trace: &'a RequestTrace, id: SpanId, name: String, kind: SpanKind) -> Self {
        let mut builder = Self::new(trace, id, name, kind);
        builder.span.parent_span_id = trace.identity.span.bytes().to_vec();
        builder
    }

    fn new(trace: &'a RequestTrace, id: SpanId, name: String, kind: SpanKind) -> Self {
        Self {
            clock: &trace.clock,
            span: Span {
                trace_id: trace.identity.trace.bytes().to_vec(),
                span_id: id.bytes().to_vec(),
                name,
                kind: kind.into(),
                flags: HAS_REMOTE | u32::from(trace.identity.is_sampled),
                ..Span::default()
            },
        }
    }

    /// Sets the times.
    pub(crate) fn lasts(mut self, began: Instant, ended: Instant) -> Self {
        self.span.start_time_unix_nano = self.clock.unix_nanos(began);
        self.span.end_time_unix_nano = self.clock.unix_nanos(ended.max(began));
        self
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.span.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Adds an attribute, where there is a value.
    pub(crate) fn maybe(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Adds an event, where there is a time.
    pub(crate) fn event(mut self, name: &str, at: Option<Instant>) -> Self {
        if let Some(at) = at {
            self.span.events.push(SpanEvent {
                time_unix_nano: self.clock.unix_nanos(at),
                name: name.to_owned(),
                attributes: Vec::new(),
            });
        }
        self
    }

    /// Adds a link to a span of the same trace, where there is one.
    pub(crate) fn link(mut self, to: Option<SpanId>) -> Self {
        self.span.links.extend(to.map(|span| SpanLink {
            trace_id: self.span.trace_id.clone(),
            span_id: span.bytes().to_vec(),
        }));
        self
    }

    /// Sets the error type, where there is one. `is_fault`: the status becomes an error too.
    pub(crate) fn error(mut self, error: Option<&str>, is_fault: bool) -> Self {
        if is_fault {
            self.span.status = Some(SpanStatus {
                message: error.unwrap_or_default().to_owned(),
                code: StatusCode::Error.into(),
            });
        }
        self.maybe(names::ERROR_TYPE, error)
    }

    /// Returns the span.
    pub(crate) fn end(self) -> Span {
        self.span
    }
}
