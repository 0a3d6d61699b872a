//! Event dispatcher: delivers events of requests and workers to policies. The server's thread does so within 50 ms;
//! here it is done before the next decision.

use std::sync::Arc;

use routing::{Event, EventKind, EventKinds, EventListener, Worker};

/// Pause after a tick that failed, in microseconds.
const AGAIN_US: u64 = 1_000_000;
/// Shortest time between two ticks, in microseconds: as often as the server's thread looks.
const PACE_US: u64 = 50_000;

/// Most events in a batch, as in the server.
const BATCH: usize = 256;

/// The receivers of events.
#[derive(Debug)]
pub(super) struct EventDispatcher {
    subscribers: Vec<EventSubscriber>,
    wanted: EventKinds,
    /// Events that are not delivered yet.
    pending: Vec<Event>,
    faults: u64,
}

#[derive(Debug)]
struct EventSubscriber {
    listener: Arc<dyn EventListener>,
    /// Time of the next tick. `None` if the policy does not tick.
    next_tick_us: Option<u64>,
}

/// Event of a worker, or of a request there.
#[derive(Debug)]
pub(super) struct RouterEvent<'a> {
    pub(super) kind: EventKind,
    pub(super) at_us: u64,
    /// 0 where a worker is all it is about.
    pub(super) seq: u64,
    pub(super) session: Option<u64>,
    pub(super) worker: &'a Arc<Worker>,
    pub(super) number: f64,
}

/// Returns the number of a worker's event: the role of one that joined, as in the column `worker.role`.
pub(super) fn worker_number(kind: EventKind, worker: &Worker) -> f64 {
    match kind {
        EventKind::Joined => worker.spec().role.number(),
        _ => f64::NAN,
    }
}

impl EventDispatcher {
    /// Returns a dispatcher for which all workers have joined at the start.
    pub(super) fn new(listeners: Vec<Arc<dyn EventListener>>, workers: &[Arc<Worker>]) -> Self {
        let wanted = EventKind::ALL
            .into_iter()
            .filter(|kind| listeners.iter().any(|listener| listener.kinds().has(*kind)));
        let subscriber = |listener: Arc<dyn EventListener>| EventSubscriber {
            next_tick_us: listener.ticks().then_some(0),
            listener,
        };
        let mut dispatcher = Self {
            wanted: wanted.collect(),
            subscribers: listeners.into_iter().map(subscriber).collect(),
            pending: Vec::new(),
            faults: 0,
        };
        for worker in workers {
            dispatcher.note(&RouterEvent {
                kind: EventKind::Joined,
                at_us: 0,
                seq: 0,
                session: None,
                worker,
                number: worker_number(EventKind::Joined, worker),
            });
        }
        dispatcher
    }

    /// Returns how many calls of receivers failed.
    pub(super) fn faults(&self) -> u64 {
        self.faults
    }

    /// Records an event.
    pub(super) fn note(&mut self, note: &RouterEvent<'_>) {
        if self.wanted.has(note.kind) {
            self.pending.push(Event {
                kind: note.kind,
                at_us: note.at_us,
                seq: note.seq,
                session: note.session,
                worker: Arc::clone(note.worker),
                number: note.number,
            });
        }
    }

    /// Delivers the pending events, and calls the ticks that are due.
    pub(super) fn deliver(&mut self, now_us: u64) {
        let pending = std::mem::take(&mut self.pending);
        for subscriber in &mut self.subscribers {
            let kinds = subscriber.listener.kinds();
            let wanted = pending.iter().filter(|event| kinds.has(event.kind));
            let batch: Vec<Event> = wanted.cloned().collect();
            for batch in batch.chunks(BATCH) {
                if subscriber.listener.handle(batch, now_us).is_err() {
                    self.faults += 1;
                }
            }
            if subscriber.next_tick_us.is_some_and(|due_us| due_us <= now_us) {
                let pause_us = match subscriber.listener.tick(now_us) {
                    Ok(pause) => u64::try_from(pause.as_micros()).unwrap_or(u64::MAX),
                    Err(_) => {
                        self.faults += 1;
                        AGAIN_US
                    }
                };
                subscriber.next_tick_us = Some(now_us.saturating_add(pause_us.max(PACE_US)));
            }
        }
    }

    /// Returns the time of the next tick. `None` if no policy ticks.
    pub(super) fn next_tick_us(&self) -> Option<u64> {
        self.subscribers
            .iter()
            .filter_map(|subscriber| subscriber.next_tick_us)
            .min()
    }
}
