//! Handle of one attempt's notes.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, StatusCode};
use request_traces::{AttemptNote, SpanId, TraceParent};

use super::handle::OpenTrace;
use crate::base::label::{FAILURES, FailureKind};

/// Handle of one attempt's notes. Its drop ends the attempt.
#[derive(Debug, Default)]
pub(crate) struct AttemptSpan(Option<OpenAttempt>);

#[derive(Debug)]
struct OpenAttempt {
    trace: Arc<OpenTrace>,
    /// Index of the attempt.
    at: usize,
    /// `traceparent` of the request to the worker.
    header: Option<HeaderValue>,
}

impl AttemptSpan {
    pub(super) fn new(trace: Arc<OpenTrace>, at: usize, span: SpanId) -> Self {
        let parent = TraceParent {
            trace: trace.identity.trace,
            span,
            is_sampled: trace.identity.is_sampled,
        };
        let header = HeaderValue::from_bytes(&parent.write()).ok();
        Self(Some(OpenAttempt { trace, at, header }))
    }

    /// Returns the `traceparent` that the worker is sent, while traces are on.
    pub(crate) fn header(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.header.as_ref()
    }

    /// Records the time when a connection was at hand.
    pub(crate) fn connected(&self, at: Option<Instant>) {
        self.note(|attempt| attempt.times.connected = at);
    }

    /// Records the head of the answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.note(|attempt| {
            attempt.times.head = Some(Instant::now());
            attempt.status = Some(status.as_u16());
        });
    }

    /// Records the first byte of the body.
    pub(crate) fn first_byte(&self) {
        self.note(|attempt| {
            attempt.times.first_byte.get_or_insert_with(Instant::now);
        });
    }

    /// Records the last byte of the body.
    pub(crate) fn last_byte(&self) {
        self.note(|attempt| {
            let now = Instant::now();
            attempt.times.first_byte.get_or_insert(now);
            attempt.times.last_byte = Some(now);
        });
    }

    /// Records that the worker failed.
    pub(crate) fn failed(&self, kind: FailureKind) {
        self.note(|attempt| attempt.error = Some(FAILURES[kind as usize].1));
    }

    fn note(&self, change: impl FnOnce(&mut AttemptNote)) {
        let Some(open) = &self.0 else { return };
        open.trace.note(|trace| {
            if let Some(attempt) = trace.attempts.get_mut(open.at) {
                change(attempt);
            }
        });
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        self.note(|attempt| attempt.times.ended = Some(Instant::now()));
    }
}
