//! Lifecycle events of one worker's share of a request: its dispatch, its first token and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use routing::{EventKind, EventKinds, Worker};

use super::EventHub;
use super::note::Note;

/// Facts of a request that its events carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) seq: u64,
    pub(crate) session: Option<u64>,
    /// Prompt tokens, estimated where they are not known.
    pub(crate) prompt_tokens: u32,
}

/// Lifecycle of one worker's share of an attempt. Each one that was dispatched ends exactly once. One that is dropped
/// before it has finished or failed was abandoned.
#[derive(Debug)]
pub(crate) struct LifecycleEvents {
    hub: Arc<EventHub>,
    worker: Arc<Worker>,
    seq: u64,
    session: Option<u64>,
    prompt: u32,
    dispatched: OnceLock<Instant>,
    is_over: AtomicBool,
}

impl LifecycleEvents {
    /// Begins the events of a request that is booked at a worker. `None` where no policy subscribes to them.
    pub(crate) fn begin(
        hub: &Arc<EventHub>,
        worker: &Arc<Worker>,
        facts: impl FnOnce() -> RequestFacts,
    ) -> Option<Arc<Self>> {
        hub.subscribes_any(EventKinds::REQUESTS).then(|| {
            let facts = facts();
            Arc::new(Self {
                hub: Arc::clone(hub),
                worker: Arc::clone(worker),
                seq: facts.seq,
                session: facts.session,
                prompt: facts.prompt_tokens,
                dispatched: OnceLock::new(),
                is_over: AtomicBool::new(false),
            })
        })
    }

    /// Records the dispatch.
    pub(crate) fn dispatched(&self) {
        if self.dispatched.set(Instant::now()).is_ok() {
            self.note(EventKind::Dispatched, self.prompt.into());
        }
    }

    /// Records the first token, so long after the dispatch.
    pub(crate) fn first_token(&self, after: Duration) {
        self.note(EventKind::FirstToken, millis(after));
    }

    /// Records that the answer was read to its end.
    pub(crate) fn finished(&self) {
        self.end(EventKind::Finished);
    }

    /// Records that the worker failed.
    pub(crate) fn failed(&self) {
        self.end(EventKind::Failed);
    }

    fn end(&self, kind: EventKind) {
        if let Some(dispatched) = self.dispatched.get()
            && !self.is_over.swap(true, Ordering::Relaxed)
        {
            self.note(kind, millis(dispatched.elapsed()));
        }
    }

    fn note(&self, kind: EventKind, number: f64) {
        self.hub.note(&Note {
            kind,
            seq: self.seq,
            session: self.session,
            worker: &self.worker,
            number,
        });
    }
}

impl Drop for LifecycleEvents {
    fn drop(&mut self) {
        self.end(EventKind::Abandoned);
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
