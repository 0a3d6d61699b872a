//! Handle of one attempt's notes.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{HeaderValue, StatusCode};
use request_traces::{AttemptNote, AttemptTimes, LegKind, TraceParent};
use routing::WorkerSpec;

use super::open_trace::OpenTrace;
use crate::base::label::{FAILURES, FailureKind};

/// Handle of one attempt's notes. Its drop ends the attempt.
#[derive(Debug, Default)]
pub(crate) struct AttemptSpan(Option<OpenAttempt>);

#[derive(Debug)]
struct OpenAttempt {
    trace: Arc<OpenTrace>,
    /// `traceparent` of the request to the worker.
    header: Option<HeaderValue>,
    place: Mutex<NotePlace>,
}

/// Place of an attempt's notes.
#[derive(Debug)]
enum NotePlace {
    /// In the request's notes, at that index.
    Listed(usize),
    /// Here, because the request takes no notes. Times for which the clock would have to be read are left out.
    Own(AttemptNote),
    /// Handed over.
    Gone,
}

impl AttemptSpan {
    /// Begins an attempt.
    pub(super) fn begin(open: &Arc<OpenTrace>, worker: &Arc<WorkerSpec>, leg: LegKind, now: Instant) -> Self {
        let span = open.spec.ids.span(open.arrival.seq, open.next_attempt());
        let parent = TraceParent {
            trace: open.identity.trace,
            span,
            is_sampled: open.identity.is_sampled,
        };
        let note = AttemptNote {
            span,
            worker: Arc::clone(worker),
            leg,
            resends: 0,
            times: AttemptTimes::begin(now),
            status: None,
            error: None,
        };
        let attempt = OpenAttempt {
            trace: Arc::clone(open),
            header: HeaderValue::from_bytes(&parent.write()).ok(),
            place: Mutex::new(NotePlace::Own(note)),
        };
        if open.takes_notes() {
            attempt.list();
        }
        Self(Some(attempt))
    }

    /// Returns the `traceparent` that the worker is sent, while traces are on.
    pub(crate) fn header(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.header.as_ref()
    }

    /// Records the time when a connection was at hand.
    pub(crate) fn connected(&self, at: Option<Instant>) {
        if let Some(open) = &self.0 {
            open.note(|attempt| attempt.times.connected = at);
        }
    }

    /// Records the head of the answer.
    pub(crate) fn answered(&self, status: StatusCode) {
        let Some(open) = &self.0 else { return };
        if !status.is_success() {
            open.list();
        }
        let head = open.trace.takes_notes().then(Instant::now);
        open.note(|attempt| {
            attempt.times.head = head;
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

    /// Records that the worker failed. The request takes notes from here on.
    pub(crate) fn failed(&self, kind: FailureKind) {
        let Some(open) = &self.0 else { return };
        open.list();
        open.note(|attempt| attempt.error = Some(FAILURES[kind as usize].1));
    }

    /// Changes the notes if the request takes any: the clock is read for them.
    fn note(&self, change: impl FnOnce(&mut AttemptNote)) {
        if let Some(open) = self.0.as_ref().filter(|open| open.trace.takes_notes()) {
            open.note(change);
        }
    }
}

impl OpenAttempt {
    fn place(&self) -> MutexGuard<'_, NotePlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: impl FnOnce(&mut AttemptNote)) {
        match &mut *self.place() {
            NotePlace::Own(note) => change(note),
            NotePlace::Listed(at) => self.trace.note(|trace| {
                if let Some(attempt) = trace.attempts.get_mut(*at) {
                    change(attempt);
                }
            }),
            NotePlace::Gone => {}
        }
    }

    /// Moves the notes to those of the request, which begins notes if it takes none.
    #[cold]
    fn list(&self) {
        let mut place = self.place();
        if !matches!(*place, NotePlace::Own(_)) {
            return;
        }
        let NotePlace::Own(mut note) = mem::replace(&mut *place, NotePlace::Gone) else {
            return;
        };
        self.trace.remark(|trace| {
            let is_same = |other: LegKind| mem::discriminant(&other) == mem::discriminant(&note.leg);
            let before = trace.attempts.iter().filter(|attempt| is_same(attempt.leg));
            note.resends = u32::try_from(before.count()).unwrap_or(u32::MAX);
            *place = NotePlace::Listed(trace.attempts.len());
            trace.attempts.push(note);
        });
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(place, NotePlace::Gone) {
            NotePlace::Own(note) => self.trace.keep(note),
            NotePlace::Listed(at) => self.trace.note(|trace| {
                if let Some(attempt) = trace.attempts.get_mut(at) {
                    attempt.times.ended = Some(Instant::now());
                }
            }),
            NotePlace::Gone => {}
        }
    }
}
