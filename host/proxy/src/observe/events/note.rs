//! Note of an event, as requests and snapshots leave it.

use std::sync::Arc;

use routing::{Event, EventKind, Worker};

/// Event that has no time yet.
pub(super) struct Note<'a> {
    pub(super) kind: EventKind,
    pub(super) seq: u64,
    pub(super) session: Option<u64>,
    pub(super) worker: &'a Arc<Worker>,
    pub(super) number: f64,
}

impl<'a> Note<'a> {
    pub(super) fn joined(worker: &'a Arc<Worker>) -> Self {
        Self::of_worker(EventKind::Joined, worker, worker.spec().role.number())
    }

    pub(super) fn of_worker(kind: EventKind, worker: &'a Arc<Worker>, number: f64) -> Self {
        Self {
            kind,
            seq: 0,
            session: None,
            worker,
            number,
        }
    }

    pub(super) fn at(&self, at_us: u64) -> Event {
        Event {
            kind: self.kind,
            at_us,
            seq: self.seq,
            session: self.session,
            worker: Arc::clone(self.worker),
            number: self.number,
        }
    }
}
