//! Bounded queue between requests and the exporter's thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::notes::RequestTrace;
use crate::otlp::Span;
use crate::shadow::ShadowTrace;
use crate::spans::request_spans;

/// Most memory of all queued traces, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// Queue of traces that wait for their export. Sending never waits.
#[derive(Debug, Default)]
pub struct TraceQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Number of traces for which there was no room.
    dropped: AtomicU64,
}

/// Limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most queued traces; 0 for none.
    pub traces: usize,
    /// Number of traces for which the exporter does not wait any longer.
    pub batch: usize,
    /// Longest wait for a batch.
    pub every: Duration,
}

/// Trace in the queue.
#[derive(Debug)]
pub enum QueuedTrace {
    /// Of a request.
    Request(Box<RequestTrace>),
    /// Of a shadow's decision.
    Shadow(Box<ShadowTrace>),
}

impl QueuedTrace {
    /// Returns its spans.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        match self {
            Self::Request(trace) => request_spans(trace),
            Self::Shadow(trace) => vec![trace.to_span()],
        }
    }

    /// Returns the memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Request(trace) => trace.bytes(),
            Self::Shadow(trace) => size_of::<ShadowTrace>() + trace.policy.len(),
        }
    }
}

/// Traces taken from the queue.
#[derive(Debug, Default)]
pub struct TraceBatch {
    /// The traces, oldest first.
    pub traces: Vec<QueuedTrace>,
    /// Set once the queue is closed and empty.
    pub is_last: bool,
}

#[derive(Debug, Default)]
struct QueueState {
    limits: QueueLimits,
    traces: VecDeque<QueuedTrace>,
    bytes: usize,
    /// Set once the exporter is to end.
    is_closed: bool,
    /// Set once limits or target have changed.
    is_changed: bool,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            traces: 0,
            batch: 1,
            every: Duration::from_secs(1),
        }
    }
}

impl TraceQueue {
    /// Adds a trace. Returns `false` if there is no room for it, which is counted.
    pub fn push(&self, trace: QueuedTrace) -> bool {
        let bytes = trace.bytes();
        let mut state = self.lock();
        let has_room = state.traces.len() < state.limits.traces && state.bytes + bytes <= MOST_BYTES;
        if !has_room || state.is_closed {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        state.bytes += bytes;
        state.traces.push_back(trace);
        // The exporter waits for the first trace, then for a batch.
        let wakes = state.traces.len() == 1 || state.traces.len() == state.limits.batch;
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
        true
    }

    /// Returns the number of traces for which there was no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Sets the limits. Queued traces stay.
    pub fn configure(&self, limits: QueueLimits) {
        let mut state = self.lock();
        state.limits = limits;
        state.is_changed = true;
        self.changed.notify_all();
    }

    /// Ends the queue: no trace is added any more.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for a batch. Returns an empty one after a change of the limits.
    #[must_use]
    pub fn next(&self) -> TraceBatch {
        let mut state = self.lock();
        while state.traces.is_empty() && !state.is_closed && !state.is_changed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let deadline = Instant::now() + state.limits.every;
        while !state.is_closed && !state.is_changed && state.traces.len() < state.limits.batch {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_changed = false;
        let count = state.traces.len().min(state.limits.batch.max(1));
        let traces: Vec<_> = state.traces.drain(..count).collect();
        state.bytes -= traces.iter().map(QueuedTrace::bytes).sum::<usize>();
        TraceBatch {
            traces,
            is_last: state.is_closed && state.traces.is_empty(),
        }
    }

    /// Waits until the queue is closed, for a limited time. Returns whether it is.
    #[must_use]
    pub fn closes_within(&self, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| !state.is_closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
