//! Handle of a request's trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use inference_api::{Endpoint, Tail};
use request_traces::{
    LegKind, QueueNote, ReadNote, RequestTrace, TokenUsage, TokensNote, TraceId, TraceIdentity, TraceParent,
};
use routing::WorkerSpec;

use super::TracingSpec;
use super::attempt::AttemptSpan;
use super::open_trace::{ArrivalFacts, OpenTrace, SpanEnd};
use super::shadow::ShadowSpans;
use crate::base::headers::{TRACEPARENT, TRACESTATE};
use crate::base::label::Outcome;
use crate::base::reply::Refusal;
use crate::observe::stages::RequestStage;

/// Handle of a request's trace. Clones are handles of the same trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanHandle(Option<Arc<OpenTrace>>);

/// Facts of a request at its arrival.
#[derive(Debug)]
pub(crate) struct SpanStart<'a> {
    /// Number of the request.
    pub(crate) seq: u64,
    /// The request's `x-request-id`.
    pub(crate) id: &'a HeaderValue,
    /// Name of the client whose key the request has.
    pub(crate) client: Option<&'a Arc<str>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) method: &'a Method,
    /// Path of the endpoint, without ids.
    pub(crate) path: &'a str,
    pub(crate) arrived: Instant,
    /// Generation of the configuration.
    pub(crate) generation: u64,
    /// Set if the client requests an explanation.
    pub(crate) is_forced: bool,
}

impl SpanHandle {
    /// Opens the trace of a request, if traces are on. Removes a `tracestate` that belongs to no trace.
    pub(crate) fn begin(
        spec: Option<&Arc<TracingSpec>>,
        headers: &mut HeaderMap,
        start: SpanStart<'_>,
    ) -> Self {
        let Some(spec) = spec else {
            return Self::default();
        };
        let parent = parent_of(headers);
        if parent.is_none() {
            headers.remove(TRACESTATE);
        }
        let trace = parent.map_or_else(|| spec.ids.trace(start.seq), |parent| parent.trace);
        let identity = TraceIdentity {
            trace,
            span: spec.ids.span(start.seq, 0),
            parent: parent.map(|parent| parent.span),
            is_sampled: spec
                .rule
                .decide(trace, parent, start.is_forced, || spec.forced.take(start.arrived)),
        };
        Self(Some(Arc::new(OpenTrace::new(spec, identity, start.facts()))))
    }

    /// Returns the ids, while traces are on.
    pub(crate) fn identity(&self) -> Option<TraceIdentity> {
        self.0.as_ref().map(|open| open.identity)
    }

    /// Returns whether traces are on.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether notes are taken.
    pub(crate) fn takes_notes(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.takes_notes())
    }

    /// Returns the maker of shadows' spans, for a sampled request.
    pub(crate) fn shadows(&self) -> Option<ShadowSpans<'_>> {
        let open = self.0.as_ref().filter(|open| open.identity.is_sampled)?;
        Some(ShadowSpans::new(&open.spec, open.identity, open.arrival.seq))
    }

    /// Changes the notes, if notes are taken.
    pub(crate) fn note(&self, change: impl FnOnce(&mut RequestTrace)) {
        if let Some(open) = &self.0 {
            open.note(change);
        }
    }

    /// Changes the notes of a request that will be exported, while traces are on. Notes are taken from here on.
    pub(crate) fn remark(&self, change: impl FnOnce(&mut RequestTrace)) {
        if let Some(open) = &self.0 {
            open.remark(change);
        }
    }

    /// Records the time since `began` as a part of a stage.
    pub(crate) fn took(&self, stage: RequestStage, began: Instant) {
        self.note(|trace| {
            let ended = Instant::now();
            match stage {
                RequestStage::Read => trace.read = Some(ReadNote { ended, bytes: 0 }),
                RequestStage::Tokens => {
                    trace.tokens = Some(TokensNote {
                        began,
                        ended,
                        tokens: None,
                    });
                }
                RequestStage::Queue => trace.queue.push(QueueNote {
                    began,
                    ended,
                    is_held: !trace.decisions.is_empty(),
                    class: None,
                }),
                RequestStage::Decide | RequestStage::Connect | RequestStage::FirstByte => {}
            }
        });
    }

    /// Records the class with which a request has waited.
    pub(crate) fn waited_as(&self, class: impl FnOnce() -> i32) {
        self.note(|trace| {
            if let Some(wait) = trace.queue.last_mut() {
                wait.class = Some(class());
            }
        });
    }

    /// Records the begin of an attempt on a worker.
    pub(crate) fn attempt(&self, worker: &Arc<WorkerSpec>, leg: LegKind, now: Instant) -> AttemptSpan {
        match &self.0 {
            Some(open) => AttemptSpan::begin(open, worker, leg, now),
            None => AttemptSpan::default(),
        }
    }

    /// Records the number of the route.
    pub(crate) fn routed(&self, number: usize) {
        if let Some(open) = &self.0 {
            open.routed(number);
        }
    }

    /// Records the status that the client is sent. The first one counts.
    pub(crate) fn status(&self, status: StatusCode) {
        if let Some(open) = &self.0 {
            open.status(status.as_u16());
        }
    }

    /// Records the first byte of a stream, `after` the arrival.
    pub(crate) fn first_token(&self, after: Duration) {
        if let Some(open) = &self.0 {
            open.first_token(after);
        }
    }

    /// Records the usage of an answer that was read to its end.
    pub(crate) fn read(&self, tail: &Tail) {
        self.note(|trace| {
            trace.usage = TokenUsage {
                prompt: tail.prompt_tokens(),
                cached: tail.cached_tokens(),
                output: tail.output_tokens(),
                finish: tail.finish_reason(),
            };
        });
    }

    /// Records the refusal of a request that its lifecycle ends.
    pub(crate) fn refusal(&self, refusal: &Refusal) {
        self.status(refusal.status());
        // The worker's own refusal has no code of the router.
        if !matches!(refusal, Refusal::Relayed(_)) {
            self.remark(|trace| trace.end.error = Some(refusal.code()));
        }
    }

    /// Ends a refused request that has no lifecycle. Later ends do nothing.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.refusal(refusal);
        self.end(refusal.outcome(), None);
    }

    /// Ends the request. Later ends do nothing. Returns the trace if it is exported.
    pub(crate) fn end(&self, outcome: Outcome, facts: Option<SpanEnd<'_>>) -> Option<TraceId> {
        self.0.as_ref()?.end(outcome, facts)
    }
}

impl SpanStart<'_> {
    fn facts(&self) -> ArrivalFacts {
        ArrivalFacts {
            seq: self.seq,
            id: self.id.clone(),
            client: self.client.cloned(),
            endpoint: self.endpoint,
            method: self.method.clone(),
            forwarded: (self.endpoint == Endpoint::Forwarded).then(|| self.path.into()),
            arrived: self.arrived,
            generation: self.generation,
        }
    }
}

/// Returns the only valid parent that the headers state.
fn parent_of(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    TraceParent::parse(only.as_bytes())
}

#[cfg(test)]
mod tests {
    use request_traces::{ForcedBudget, IdSource, QueueLimits, QueuedTrace, SamplingRule, TraceQueue};

    use super::*;
    use crate::base::label::FailureKind;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn spec(share: f64) -> Arc<TracingSpec> {
        let queue = TraceQueue::default();
        queue.configure(QueueLimits {
            traces: 10,
            batch: 1,
            every: Duration::from_secs(1),
        });
        assert!(queue.next().traces.is_empty());
        Arc::new(TracingSpec {
            queue: queue.into(),
            ids: IdSource::new([1, 2]),
            rule: SamplingRule::new(share, None),
            forced: ForcedBudget::new(10),
        })
    }

    fn begin(spec: &Arc<TracingSpec>, headers: &mut HeaderMap) -> SpanHandle {
        let start = SpanStart {
            seq: 1,
            id: &HeaderValue::from_static("req-1"),
            client: None,
            endpoint: Endpoint::ChatCompletions,
            method: &Method::POST,
            path: "/v1/chat/completions",
            arrived: Instant::now(),
            generation: 1,
            is_forced: false,
        };
        SpanHandle::begin(Some(spec), headers, start)
    }

    /// Returns the next batch of requests' traces.
    fn exported(spec: &TracingSpec) -> Vec<RequestTrace> {
        let traces = spec.queue.next().traces.into_iter();
        let request = |trace| match trace {
            QueuedTrace::Request(trace) => *trace,
            QueuedTrace::Shadow(_) => panic!("no shadow was called"),
        };
        traces.map(request).collect()
    }

    fn worker() -> Arc<WorkerSpec> {
        Arc::new(WorkerSpec::mixed("w", "http://w"))
    }

    fn headers(parents: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACESTATE, HeaderValue::from_static("a=b"));
        for parent in parents {
            headers.append(TRACEPARENT, HeaderValue::from_static(parent));
        }
        headers
    }

    #[test]
    fn a_sampled_request_is_handed_over_once() {
        let spec = spec(1.0);
        let handle = begin(&spec, &mut HeaderMap::new());
        handle.status(StatusCode::OK);
        handle.end(Outcome::Complete, None);
        handle.end(Outcome::ClientLeft, None);
        drop(handle);
        let traces = exported(&spec);
        assert_eq!(traces.len(), 1);
        assert_eq!(traces[0].end.outcome, "complete");
    }

    #[test]
    fn a_request_that_was_not_sampled_is_handed_over_if_it_fails() {
        let spec = spec(0.0);
        begin(&spec, &mut HeaderMap::new()).end(Outcome::Complete, None);
        begin(&spec, &mut HeaderMap::new()).refused(&Refusal::NoKey);
        drop(begin(&spec, &mut HeaderMap::new()));
        assert_eq!(exported(&spec)[0].end.outcome, "unauthorized");
        assert_eq!(exported(&spec)[0].end.outcome, "client-left");
    }

    #[test]
    fn a_valid_parent_is_continued_with_its_state() {
        let spec = spec(0.0);
        let mut map = headers(&[PARENT]);
        let identity = begin(&spec, &mut map).identity().unwrap();
        assert_eq!(identity.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(identity.parent.unwrap().to_string(), "00f067aa0ba902b7");
        assert!(identity.is_sampled);
        assert!(map.contains_key(TRACESTATE));
    }

    #[test]
    fn the_state_of_an_invalid_parent_is_removed() {
        let spec = spec(0.0);
        for parents in [&[][..], &["00-1-2-3"], &[PARENT, PARENT]] {
            let mut map = headers(parents);
            let identity = begin(&spec, &mut map).identity().unwrap();
            assert_eq!(identity.parent, None, "{parents:?}");
            assert!(!map.contains_key(TRACESTATE), "{parents:?}");
        }
    }

    #[test]
    fn an_attempt_has_a_header_of_its_own() {
        let spec = spec(1.0);
        let handle = begin(&spec, &mut headers(&[PARENT]));
        let worker = worker();
        let attempts: Vec<_> = (0..2)
            .map(|_| handle.attempt(&worker, LegKind::Whole, Instant::now()))
            .collect();
        let parent =
            |attempt: &AttemptSpan| TraceParent::parse(attempt.header().unwrap().as_bytes()).unwrap();
        let (first, second) = (parent(&attempts[0]), parent(&attempts[1]));
        assert_eq!(first.trace, handle.identity().unwrap().trace);
        assert_ne!(first.span, second.span);
        assert!(first.is_sampled);
        handle.note(|trace| {
            let resends: Vec<_> = trace.attempts.iter().map(|attempt| attempt.resends).collect();
            assert_eq!(resends, [0, 1]);
        });
    }

    #[test]
    fn a_request_that_is_not_sampled_takes_notes_from_its_first_failure_on() {
        let spec = spec(0.0);
        let handle = begin(&spec, &mut HeaderMap::new());
        handle.note(|_| unreachable!("it takes no notes"));
        let first = handle.attempt(&worker(), LegKind::Whole, Instant::now());
        assert!(!handle.takes_notes());
        first.failed(FailureKind::Closed);
        drop(first);
        assert!(handle.takes_notes());
        drop(handle.attempt(&worker(), LegKind::Whole, Instant::now()));
        handle.end(Outcome::Complete, None);
        let trace = &exported(&spec)[0];
        let resends: Vec<_> = trace.attempts.iter().map(|attempt| attempt.resends).collect();
        assert_eq!(resends, [0, 1]);
        assert!(trace.attempts[0].error.is_some() && trace.attempts[1].error.is_none());
    }

    #[test]
    fn a_slow_request_that_is_not_sampled_is_exported_with_its_attempts() {
        let mut spec = spec(0.0);
        let slow = Some(Duration::from_secs(1));
        Arc::get_mut(&mut spec).unwrap().rule = SamplingRule::new(0.0, slow);
        for after in [Duration::from_millis(900), Duration::from_secs(2)] {
            let handle = begin(&spec, &mut HeaderMap::new());
            for leg in [LegKind::Prefill("nixl"), LegKind::Decode] {
                let attempt = handle.attempt(&worker(), leg, Instant::now());
                attempt.answered(StatusCode::OK);
            }
            handle.first_token(after);
            handle.routed(3);
            let exported = handle.end(Outcome::Complete, None);
            assert_eq!(exported.is_some(), after > Duration::from_secs(1));
        }
        let traces = exported(&spec);
        assert_eq!(traces.len(), 1);
        let legs: Vec<_> = traces[0].attempts.iter().map(|attempt| attempt.leg).collect();
        assert_eq!(legs, [LegKind::Prefill("nixl"), LegKind::Decode]);
        assert_eq!(traces[0].facts.route.number, Some(3));
        assert_eq!(traces[0].end.ttft, Some(Duration::from_secs(2)));
    }

    #[test]
    fn traces_that_are_off_cost_a_check() {
        let handle = SpanHandle::default();
        assert!(!handle.takes_notes());
        handle.note(|_| unreachable!("there are no notes"));
    }
}
