//! Handle of a request's notes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use inference_api::{Endpoint, EndpointClass, Tail};
use request_traces::{
    AttemptNote, AttemptTimes, ClockReading, EndKind, GivenParams, LegKind, QueueNote, ReadNote, RequestEnd,
    RequestFacts, RequestTrace, TokenUsage, TokensNote, TraceId, TraceIdentity, TraceParent,
};
use routing::WorkerSpec;

use super::TracingSpec;
use super::attempt::AttemptSpan;
use crate::base::headers::{TRACEPARENT, TRACESTATE};
use crate::base::label::{OUTCOMES, Outcome};
use crate::base::reply::Refusal;
use crate::base::request_id::RequestId;
use crate::observe::access::method_name;
use crate::observe::stages::RequestStage;

/// Handle of a request's notes. Clones are handles of the same notes.
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
    pub(crate) client: Option<&'a str>,
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

/// Notes of a request that has not ended.
#[derive(Debug)]
pub(super) struct OpenTrace {
    spec: Arc<TracingSpec>,
    seq: u64,
    pub(super) identity: TraceIdentity,
    /// `None` once the request has ended.
    notes: Mutex<Option<Box<RequestTrace>>>,
}

impl SpanHandle {
    /// Starts the notes of a request, if traces are on. Removes a `tracestate` that belongs to no trace.
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
        let notes = Mutex::new(Some(Box::new(RequestTrace {
            identity,
            clock: ClockReading {
                instant: start.arrived,
                system: SystemTime::UNIX_EPOCH,
            },
            facts: start.facts(),
            read: None,
            tokens: None,
            queue: Vec::new(),
            decisions: Vec::new(),
            attempts: Vec::new(),
            usage: TokenUsage::default(),
            end: RequestEnd {
                at: start.arrived,
                outcome: "",
                kind: EndKind::Complete,
                status: None,
                error: None,
                ttft: None,
            },
        })));
        Self(Some(Arc::new(OpenTrace {
            spec: Arc::clone(spec),
            seq: start.seq,
            identity,
            notes,
        })))
    }

    /// Returns the ids, while traces are on.
    pub(crate) fn identity(&self) -> Option<TraceIdentity> {
        self.0.as_ref().map(|open| open.identity)
    }

    /// Returns whether notes are taken.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Changes the notes, unless traces are off or the request has ended.
    pub(crate) fn note(&self, change: impl FnOnce(&mut RequestTrace)) {
        if let Some(open) = &self.0 {
            open.note(change);
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
                }),
                RequestStage::Decide | RequestStage::Connect | RequestStage::FirstByte => {}
            }
        });
    }

    /// Records the begin of an attempt on a worker.
    pub(crate) fn attempt(&self, worker: &Arc<WorkerSpec>, leg: LegKind, now: Instant) -> AttemptSpan {
        let Some(open) = &self.0 else {
            return AttemptSpan::default();
        };
        let mut notes = open.lock();
        let Some(trace) = &mut *notes else {
            return AttemptSpan::default();
        };
        let at = trace.attempts.len();
        let span = open.spec.ids.span(open.seq, at as u64 + 1);
        let is_same = |other: LegKind| std::mem::discriminant(&other) == std::mem::discriminant(&leg);
        let before = trace.attempts.iter().filter(|attempt| is_same(attempt.leg));
        let resends = u32::try_from(before.count()).unwrap_or(u32::MAX);
        trace.attempts.push(AttemptNote {
            span,
            worker: Arc::clone(worker),
            leg,
            resends,
            times: AttemptTimes::begin(now),
            status: None,
            error: None,
        });
        drop(notes);
        AttemptSpan::new(Arc::clone(open), at, span)
    }

    /// Records the status that the client is sent. The first one counts.
    pub(crate) fn status(&self, status: StatusCode) {
        self.note(|trace| {
            trace.end.status.get_or_insert(status.as_u16());
        });
    }

    /// Records the first byte of a stream, `after` the arrival.
    pub(crate) fn first_token(&self, after: Duration) {
        self.note(|trace| trace.end.ttft = Some(after));
    }

    /// Records the usage of an answer that was read to its end.
    pub(crate) fn read(&self, tail: &Tail) {
        self.note(|trace| {
            trace.usage = TokenUsage {
                prompt: tail.prompt_tokens(),
                cached: tail.cached_tokens(),
                output: tail.output_tokens(),
                // It is searched for in the text.
                finish: trace.identity.is_sampled.then(|| tail.finish_reason()).flatten(),
            };
        });
    }

    /// Records the refusal of a request that its lifecycle ends.
    pub(crate) fn refusal(&self, refusal: &Refusal) {
        self.status(refusal.status());
        // The worker's own refusal has no code of the router.
        if !matches!(refusal, Refusal::Relayed(_)) {
            self.note(|trace| trace.end.error = Some(refusal.code()));
        }
    }

    /// Ends a refused request that has no lifecycle. Later ends do nothing.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.refusal(refusal);
        self.end(refusal.outcome());
    }

    /// Ends the request. Later ends do nothing. Returns the trace if it is exported.
    pub(crate) fn end(&self, outcome: Outcome) -> Option<TraceId> {
        self.0.as_ref()?.end(outcome)
    }
}

impl SpanStart<'_> {
    fn facts(&self) -> RequestFacts {
        RequestFacts {
            arrived: self.arrived,
            method: method_name(self.method),
            path: self.path.into(),
            operation: operation(self.endpoint.spec().class),
            request_id: RequestId(self.id).text(),
            client: self.client.map(Into::into),
            generation: self.generation,
            route: None,
            model: None,
            params: GivenParams::default(),
        }
    }
}

impl OpenTrace {
    /// Changes the notes, unless the request has ended.
    pub(super) fn note(&self, change: impl FnOnce(&mut RequestTrace)) {
        if let Some(trace) = &mut *self.lock() {
            change(trace);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<RequestTrace>>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the request, and hands its notes to the exporter if they are wanted.
    fn end(&self, outcome: Outcome) -> Option<TraceId> {
        let mut trace = self.lock().take()?;
        let now = Instant::now();
        trace.end.at = now;
        trace.end.outcome = OUTCOMES[outcome as usize].1;
        trace.end.kind = kind_of(outcome);
        let is_exported = self.identity.is_sampled || trace.is_remarkable(self.spec.rule.slow);
        if !is_exported {
            return None;
        }
        trace.clock = ClockReading {
            instant: now,
            system: SystemTime::now(),
        };
        // Counted where there is no room.
        let has_room = self.spec.queue.push(trace);
        has_room.then_some(self.identity.trace)
    }
}

impl Drop for OpenTrace {
    fn drop(&mut self) {
        self.end(Outcome::ClientLeft);
    }
}

/// Returns the only valid parent that the headers state.
fn parent_of(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    TraceParent::parse(only.as_bytes())
}

fn kind_of(outcome: Outcome) -> EndKind {
    match outcome {
        Outcome::Complete => EndKind::Complete,
        Outcome::ClientLeft => EndKind::ClientLeft,
        Outcome::UpstreamError
        | Outcome::ShutDown
        | Outcome::IdleTimeout
        | Outcome::FirstByteTimeout
        | Outcome::Unreachable
        | Outcome::RequestTimeout => EndKind::Failed,
        Outcome::Rejected
        | Outcome::QueueFull
        | Outcome::QueueTimeout
        | Outcome::Invalid
        | Outcome::Unauthorized
        | Outcome::Limited
        | Outcome::Shed
        | Outcome::TooSlow
        | Outcome::BodiesFull => EndKind::Refused,
    }
}

/// Returns the GenAI operation of an endpoint.
fn operation(class: EndpointClass) -> Option<&'static str> {
    match class {
        EndpointClass::Chat | EndpointClass::Message | EndpointClass::Response => Some("chat"),
        EndpointClass::Completion => Some("text_completion"),
        EndpointClass::Embedding => Some("embeddings"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use request_traces::{ForcedBudget, IdSource, QueueLimits, SamplingRule, TraceQueue};

    use super::*;

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
        handle.end(Outcome::Complete);
        handle.end(Outcome::ClientLeft);
        drop(handle);
        let traces = spec.queue.next().traces;
        assert_eq!(traces.len(), 1);
        assert_eq!(traces[0].end.outcome, "complete");
    }

    #[test]
    fn a_request_that_was_not_sampled_is_handed_over_if_it_fails() {
        let spec = spec(0.0);
        begin(&spec, &mut HeaderMap::new()).end(Outcome::Complete);
        begin(&spec, &mut HeaderMap::new()).refused(&Refusal::NoKey);
        drop(begin(&spec, &mut HeaderMap::new()));
        let outcomes = |queue: &TraceQueue| queue.next().traces[0].end.outcome;
        assert_eq!(outcomes(&spec.queue), "unauthorized");
        assert_eq!(outcomes(&spec.queue), "client-left");
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
        let worker = Arc::new(WorkerSpec {
            name: "w".into(),
            url: "http://w".into(),
            role: routing::Role::Mixed,
            models: Vec::new(),
            weight: 1.0,
            labels: std::collections::BTreeMap::new(),
            rank: None,
            bootstrap: None,
        });
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
    fn traces_that_are_off_cost_a_check() {
        let handle = SpanHandle::default();
        assert!(!handle.is_on());
        handle.note(|_| unreachable!("there are no notes"));
    }
}
