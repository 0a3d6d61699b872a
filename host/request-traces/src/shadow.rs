//! Trace of a shadow's decision: one span, with a link to the request that it is about.

use std::sync::Arc;
use std::time::Instant;

use routing::WorkerSpec;

use crate::context::{SpanId, TraceId};
use crate::names;
use crate::notes::ClockReading;
use crate::otlp::Span;
use crate::span_builder::SpanBuilder;

/// Notes of one decision of a shadow.
#[derive(Debug)]
pub struct ShadowTrace {
    /// Trace of the decision.
    pub trace: TraceId,
    /// Span of the decision.
    pub span: SpanId,
    /// Trace and span of the request.
    pub about: (TraceId, SpanId),
    /// Reading of both clocks.
    pub clock: ClockReading,
    /// Begin of the decision.
    pub began: Instant,
    /// End of the decision.
    pub ended: Instant,
    /// Name of the shadow's policy.
    pub policy: Box<str>,
    /// Version that was called. `None` where none was.
    pub version: Option<Arc<str>>,
    /// Comparison with the placement that was made.
    pub result: &'static str,
    /// Worker that the shadow chose.
    pub worker: Option<Arc<WorkerSpec>>,
}

impl ShadowTrace {
    /// Returns its span.
    #[must_use]
    pub fn to_span(&self) -> Span {
        SpanBuilder::shadow(self)
            .lasts(self.began, self.ended)
            .with(names::POLICY, &*self.policy)
            .maybe(names::POLICY_VERSION, self.version.as_deref())
            .with(names::RESULT, self.result)
            .maybe(names::WORKER, self.worker.as_ref().map(|worker| &*worker.name))
            .error(None, self.result == names::RESULT_FAULT)
            .end()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::otlp::SpanKind;

    #[test]
    fn a_shadow_has_a_trace_of_its_own_that_links_to_the_request() {
        let now = Instant::now();
        let (trace, request) = (TraceId::new([1; 16]).unwrap(), TraceId::new([2; 16]).unwrap());
        let span = ShadowTrace {
            trace,
            span: SpanId::new([3; 8]).unwrap(),
            about: (request, SpanId::new([4; 8]).unwrap()),
            clock: ClockReading {
                instant: now,
                system: SystemTime::now(),
            },
            began: now,
            ended: now,
            policy: "round-robin".into(),
            version: None,
            result: "differed",
            worker: None,
        }
        .to_span();
        assert_eq!(
            (span.name.as_str(), span.kind()),
            ("conductor.shadow", SpanKind::Internal)
        );
        assert_eq!(span.trace_id, [1; 16]);
        assert!(span.parent_span_id.is_empty());
        assert_eq!(
            (&span.links[0].trace_id[..], &span.links[0].span_id[..]),
            (&[2; 16][..], &[4; 8][..])
        );
        assert_eq!(span.status, None);
    }
}
