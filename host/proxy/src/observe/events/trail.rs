//! What one worker's share of a request leaves behind: that it went out, that its first token came, how it ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use routing::{EventKind, EventKinds, Worker};

use super::{EventHub, Note, millis};
use crate::request::context::RequestContext;
use crate::request::snapshot::Member;

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
    /// Of a request that is booked there; none where nobody wants to know.
    pub(crate) fn begin(request: &RequestContext, member: &Member) -> Option<Arc<Self>> {
        let hub = &request.snapshot.events;
        hub.wants_any(EventKinds::REQUESTS).then(|| {
            Arc::new(Self {
                hub: Arc::clone(hub),
                worker: Arc::clone(&member.worker),
                seq: request.seq,
                session: request.session,
                prompt: request.prompt_tokens(),
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
