//! What one worker's share of a request leaves behind: that it went out, that its first token came, how it ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use routing::{EventKind, EventKinds, Worker};

use super::{EventHub, Note, millis};

/// Facts of a request that its events carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) seq: u64,
    pub(crate) session: Option<u64>,
    /// Prompt tokens, estimated where they are not known.
    pub(crate) prompt_tokens: u32,
}

/// One worker's share of one try of a request. Each that was dispatched ends exactly once: dropped before it has finished or
/// failed, it was abandoned.
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
    /// Begins the events of a request that is booked at a worker; none where no policy wants them.
    pub(crate) fn begin(
        hub: &Arc<EventHub>,
        worker: &Arc<Worker>,
        facts: impl FnOnce() -> RequestFacts,
    ) -> Option<Arc<Self>> {
        hub.wants_any(EventKinds::REQUESTS).then(|| {
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

    /// It goes out.
    pub(crate) fn dispatched(&self) {
        if self.dispatched.set(Instant::now()).is_ok() {
            self.note(EventKind::Dispatched, self.prompt.into());
        }
    }

    /// Its first token came, so long after the dispatch.
    pub(crate) fn first_token(&self, after: Duration) {
        self.note(EventKind::FirstToken, millis(after));
    }

    /// The answer was read to its end.
    pub(crate) fn finished(&self) {
        self.end(EventKind::Finished);
    }

    /// The worker failed at it.
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
