//! Trace of a request that has not ended: what is kept of it, whether notes are taken or not.
//!
//! A sampled request takes notes from its arrival. Any other takes none except a few numbers that are at hand.
//! It begins notes with its first failure. Its end makes a trace of the present notes if the request was remarkable.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderValue, Method};
use inference_api::Endpoint;
use request_traces::{
    AttemptNote, ClockReading, EndKind, QueuedTrace, RequestEnd, RequestFacts, RequestTrace, StageTotals,
    TraceId, TraceIdentity,
};

use super::TracingSpec;
use super::labels::{kind_of, operation};
use crate::base::label::{OUTCOMES, Outcome};
use crate::base::request_id::RequestId;
use crate::observe::access::method_name;
use crate::observe::stages::{RequestStage, StageTimes};

/// Attempts that a request keeps without notes: both legs of one that is split.
const KEPT: usize = 2;

/// Trace of a request that has not ended.
#[derive(Debug)]
pub(super) struct OpenTrace {
    pub(super) spec: Arc<TracingSpec>,
    pub(super) identity: TraceIdentity,
    pub(super) arrival: ArrivalFacts,
    /// Number of attempts so far.
    attempts: AtomicU32,
    /// Number of the route; 0 while it is unknown.
    route: AtomicU32,
    /// Status that the client is sent; 0 while there is none.
    status: AtomicU16,
    /// Time to the first token in nanoseconds; 0 while there is none.
    ttft: AtomicU64,
    /// Set while notes are taken.
    takes_notes: AtomicBool,
    state: Mutex<TraceState>,
}

/// Facts of a request at its arrival, for the facts of a trace.
#[derive(Debug)]
pub(super) struct ArrivalFacts {
    /// Number of the request.
    pub(super) seq: u64,
    pub(super) id: HeaderValue,
    pub(super) client: Option<Arc<str>>,
    pub(super) endpoint: Endpoint,
    pub(super) method: Method,
    /// Path of a forwarded endpoint, which the configuration names.
    pub(super) forwarded: Option<Box<str>>,
    pub(super) arrived: Instant,
    /// Generation of the configuration.
    pub(super) generation: u64,
}

/// Facts that are known at the end of a request with a pool.
#[derive(Debug)]
pub(crate) struct SpanEnd<'a> {
    pub(crate) pool: &'a str,
    /// Label of the model in the metrics.
    pub(crate) model: &'a str,
    pub(crate) stages: StageTimes,
    /// Set if the admin page explains the request.
    pub(crate) is_explained: bool,
}

#[derive(Debug, Default)]
struct TraceState {
    notes: Option<Box<RequestTrace>>,
    /// Attempts that ended without notes.
    ended: [Option<AttemptNote>; KEPT],
    /// Set once the request has ended.
    is_over: bool,
}

impl OpenTrace {
    /// Opens the trace of a request that has arrived.
    pub(super) fn new(spec: &Arc<TracingSpec>, identity: TraceIdentity, arrival: ArrivalFacts) -> Self {
        let trace = Self {
            spec: Arc::clone(spec),
            identity,
            arrival,
            attempts: AtomicU32::new(0),
            route: AtomicU32::new(0),
            status: AtomicU16::new(0),
            ttft: AtomicU64::new(0),
            takes_notes: AtomicBool::new(false),
            state: Mutex::default(),
        };
        if identity.is_sampled {
            trace.remark(|_| ());
        }
        trace
    }

    /// Returns whether notes are taken.
    pub(super) fn takes_notes(&self) -> bool {
        self.takes_notes.load(Ordering::Relaxed)
    }

    /// Changes the notes, if notes are taken.
    pub(super) fn note(&self, change: impl FnOnce(&mut RequestTrace)) {
        if self.takes_notes()
            && let Some(notes) = &mut self.lock().notes
        {
            change(notes);
        }
    }

    /// Changes the notes of a request that will be exported. Begins them where none are taken.
    #[cold]
    pub(super) fn remark(&self, change: impl FnOnce(&mut RequestTrace)) {
        let mut state = self.lock();
        if state.is_over {
            return;
        }
        if state.notes.is_none() {
            let mut notes = self.notes();
            notes
                .attempts
                .extend(state.ended.iter_mut().filter_map(Option::take));
            state.notes = Some(notes);
            self.takes_notes.store(true, Ordering::Relaxed);
        }
        state.notes.as_deref_mut().map(change);
    }

    /// Returns the number of a new attempt, from 1.
    pub(super) fn next_attempt(&self) -> u64 {
        u64::from(self.attempts.fetch_add(1, Ordering::Relaxed)) + 1
    }

    /// Keeps an attempt that ended without notes. The first ones make room for later ones.
    pub(super) fn keep(&self, attempt: AttemptNote) {
        let mut state = self.lock();
        match &mut state.notes {
            Some(notes) => notes.attempts.push(attempt),
            None => {
                state.ended.rotate_left(1);
                state.ended[KEPT - 1] = Some(attempt);
            }
        }
    }

    /// Records the number of the route.
    pub(super) fn routed(&self, number: usize) {
        let number = u32::try_from(number).unwrap_or_default();
        self.route.store(number, Ordering::Relaxed);
    }

    /// Records the status that the client is sent. The first one counts.
    pub(super) fn status(&self, status: u16) {
        if self.status.load(Ordering::Relaxed) == 0 {
            self.status.store(status, Ordering::Relaxed);
        }
    }

    /// Records the time to the first token.
    pub(super) fn first_token(&self, after: Duration) {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.ttft.store(nanos.max(1), Ordering::Relaxed);
    }

    /// Ends the request, and hands its trace to the exporter if it is wanted. Returns the id of an exported trace.
    pub(super) fn end(&self, outcome: Outcome, facts: Option<SpanEnd<'_>>) -> Option<TraceId> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return None;
        }
        self.takes_notes.store(false, Ordering::Relaxed);
        let notes = state.notes.take();
        let end = self.request_end(outcome);
        if notes.is_none() && !self.is_remarkable(&end) {
            return None;
        }
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        let mut trace = notes.unwrap_or_else(|| self.notes());
        trace.attempts.extend(ended.into_iter().flatten());
        trace.end = RequestEnd {
            error: trace.end.error,
            ..end
        };
        self.finish(trace, facts)
    }

    /// Completes a trace, and hands it to the exporter if it is wanted.
    #[cold]
    fn finish(&self, mut trace: Box<RequestTrace>, facts: Option<SpanEnd<'_>>) -> Option<TraceId> {
        let route = self.route.load(Ordering::Relaxed);
        trace.facts.route.number = (route > 0).then_some(route as usize);
        if let Some(facts) = facts {
            trace.facts.route.pool = Some(facts.pool.into());
            trace.facts.route.is_explained = facts.is_explained;
            trace.facts.model.get_or_insert_with(|| facts.model.into());
            trace.stages = totals(&facts.stages);
        }
        if !self.identity.is_sampled && !trace.is_remarkable(self.spec.rule.slow) {
            return None;
        }
        trace.clock = ClockReading {
            instant: trace.end.at,
            system: SystemTime::now(),
        };
        // Counted where there is no room.
        let has_room = self.spec.queue.push(QueuedTrace::Request(trace));
        has_room.then_some(self.identity.trace)
    }

    /// Returns whether a request is exported although no notes were taken.
    fn is_remarkable(&self, end: &RequestEnd) -> bool {
        let is_slow = |slow: Duration| end.ttft.is_some_and(|ttft| ttft > slow);
        end.kind != EndKind::Complete
            || end.status.is_some_and(|status| status >= 500)
            || self.spec.rule.slow.is_some_and(is_slow)
    }

    fn request_end(&self, outcome: Outcome) -> RequestEnd {
        let (status, ttft) = (
            self.status.load(Ordering::Relaxed),
            self.ttft.load(Ordering::Relaxed),
        );
        RequestEnd {
            at: Instant::now(),
            outcome: OUTCOMES[outcome as usize].1,
            kind: kind_of(outcome),
            status: (status > 0).then_some(status),
            error: None,
            ttft: (ttft > 0).then(|| Duration::from_nanos(ttft)),
        }
    }

    /// Returns the notes of a request of which only the arrival is known.
    fn notes(&self) -> Box<RequestTrace> {
        let arrival = &self.arrival;
        let path = arrival.forwarded.as_deref().unwrap_or(arrival.endpoint.path());
        let clock = ClockReading {
            instant: arrival.arrived,
            system: SystemTime::UNIX_EPOCH,
        };
        let facts = RequestFacts {
            operation: operation(arrival.endpoint.spec().class),
            request_id: RequestId(&arrival.id).text(),
            client: arrival.client.as_deref().map(Into::into),
            generation: arrival.generation,
            ..RequestFacts::of_arrival(arrival.arrived, method_name(&arrival.method), path.into())
        };
        let end = self.request_end(Outcome::Complete);
        Box::new(RequestTrace::begin(self.identity, clock, facts, end))
    }

    fn lock(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenTrace {
    fn drop(&mut self) {
        self.end(Outcome::ClientLeft, None);
    }
}

fn totals(stages: &StageTimes) -> StageTotals {
    StageTotals {
        read: stages.spent(RequestStage::Read),
        tokens: stages.spent(RequestStage::Tokens),
        queue: stages.spent(RequestStage::Queue),
        decide: stages.spent(RequestStage::Decide),
    }
}
