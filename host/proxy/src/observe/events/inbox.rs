//! Event queue of one policy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use routing::{
    Circuit, CircuitChange, CircuitState, Event, EventKind, EventKinds, EventListener, FaultKind, PolicyFault,
};
use tracing::{info, warn};

use super::clock::EventClock;
use super::metrics::{EventFamilies, ListenerMetrics};
use super::note::Note;
use crate::base::throttle::Throttle;

/// Most events that wait for a policy.
pub(super) const QUEUE: usize = 4_096;
/// Most events that a policy receives at a time.
pub(super) const BATCH: usize = 256;

/// Statistics of a policy that receives events.
#[derive(Debug, Clone)]
pub struct ListenerReport {
    /// Name of the policy in the configuration.
    pub policy: String,
    /// Event kinds that the policy subscribes to.
    pub kinds: Vec<&'static str>,
    /// Set if the policy receives ticks.
    pub ticks: bool,
    /// Events that the policy has handled, including those of its earlier versions.
    pub delivered: u64,
    /// Events that were not delivered, or whose batch the policy failed at.
    pub dropped: u64,
    /// Failed calls of its handler or its tick, by kind, in a fixed order.
    pub faults: Vec<(&'static str, u64)>,
    /// Events that wait for delivery.
    pub waiting: usize,
    /// Circuit breaker of the policy: events are delivered while it is closed.
    pub circuit: CircuitState,
}

/// Event queue of one version of a policy, and the state that decides whether the policy receives events.
#[derive(Debug)]
pub(super) struct Inbox {
    listener: Arc<dyn EventListener>,
    kinds: EventKinds,
    /// Queue, locked for the time it takes to move some events.
    queue: Mutex<EventQueue>,
    circuit: Circuit,
    metrics: ListenerMetrics,
    fault_log: Throttle,
}

#[derive(Debug, Default)]
struct EventQueue {
    events: VecDeque<Event>,
    /// Number of events at the front that are the initial workers. These take no room.
    roster: usize,
}

impl EventQueue {
    fn is_full(&self) -> bool {
        self.events.len() - self.roster >= QUEUE
    }

    fn take(&mut self) -> Vec<Event> {
        let batch = self.events.len().min(BATCH);
        self.roster = self.roster.saturating_sub(batch);
        self.events.drain(..batch).collect()
    }
}

impl Inbox {
    pub(super) fn new(listener: Arc<dyn EventListener>, families: &EventFamilies) -> Self {
        Self {
            kinds: listener.kinds(),
            metrics: families.listener(listener.policy()),
            listener,
            queue: Mutex::default(),
            circuit: Circuit::default(),
            fault_log: Throttle::default(),
        }
    }

    pub(super) fn is_of(&self, listener: &Arc<dyn EventListener>) -> bool {
        is_same(&self.listener, listener)
    }

    pub(super) fn kinds(&self) -> EventKinds {
        self.kinds
    }

    pub(super) fn subscribes(&self, kind: EventKind) -> bool {
        self.kinds.has(kind)
    }

    pub(super) fn ticks(&self) -> bool {
        self.listener.ticks()
    }

    /// Begins the queue with the present workers, however many.
    pub(super) fn begin<'a>(&self, clock: EventClock, joined: impl Iterator<Item = Note<'a>>) {
        let mut queue = self.queue();
        queue.events.extend(joined.map(|note| note.at(clock.now_us())));
        queue.roster = queue.events.len();
    }

    pub(super) fn push(&self, clock: EventClock, note: &Note<'_>) {
        let mut queue = self.queue();
        if queue.is_full() {
            self.metrics.dropped.inc();
            return;
        }
        // The time is taken under the lock, so that a later event in the queue has no earlier time.
        queue.events.push_back(note.at(clock.now_us()));
    }

    /// Delivers one batch. Returns `true` if there may be more.
    pub(super) fn deliver(&self, clock: EventClock) -> bool {
        let batch = self.queue().take();
        if batch.is_empty() {
            return false;
        }
        let events = batch.len() as u64;
        let handled = self.call(clock, |now_us| self.listener.handle(&batch, now_us));
        let counted = match handled {
            Some(()) => &self.metrics.delivered,
            None => &self.metrics.dropped,
        };
        counted.inc_by(events);
        batch.len() == BATCH
    }

    /// Calls the policy's tick. Returns the time to the next one, if the call had an answer.
    pub(super) fn tick(&self, clock: EventClock) -> Option<Duration> {
        let pause = self.call(clock, |now_us| self.listener.tick(now_us))?;
        self.metrics.ticks.inc();
        Some(pause)
    }

    /// Closes the queue: delivers the waiting events, and drops the policy.
    pub(super) fn close(&self, clock: EventClock) {
        while self.deliver(clock) {}
        self.listener.rest();
    }

    /// Calls the policy, unless its circuit is open.
    fn call<T>(&self, clock: EventClock, act: impl FnOnce(u64) -> Result<T, PolicyFault>) -> Option<T> {
        let admission = self.circuit.admit(clock.now_us())?;
        match act(clock.now_us()) {
            Ok(answer) => {
                if self.circuit.succeeded(admission, clock.now_us()) == CircuitChange::Closed {
                    info!(
                        policy = self.listener.policy(),
                        "the circuit closed: the policy receives events again"
                    );
                }
                Some(answer)
            }
            Err(fault) => {
                self.metrics.failed(fault.kind);
                if let CircuitChange::Opened(rest) = self.circuit.failed(admission, clock.now_us()) {
                    let (policy, kind) = (self.listener.policy(), fault.kind.as_str());
                    warn!(
                        policy,
                        fault = kind,
                        ?rest,
                        "the circuit opened after repeated faults: the policy receives no events and no ticks"
                    );
                }
                self.log(&fault);
                None
            }
        }
    }

    fn log(&self, fault: &PolicyFault) {
        if let Some(held_back) = self.fault_log.pass() {
            warn!(
                policy = self.listener.policy(),
                fault = fault.kind.as_str(),
                error = fault as &dyn std::error::Error,
                held_back,
                "a policy failed to handle events or its tick: its decisions are not affected"
            );
        }
    }

    fn queue(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self) -> ListenerReport {
        let kinds = EventKind::ALL.into_iter().filter(|kind| self.subscribes(*kind));
        let metrics = &self.metrics;
        ListenerReport {
            policy: self.listener.policy().to_owned(),
            kinds: kinds.map(EventKind::as_str).collect(),
            ticks: self.ticks(),
            delivered: metrics.delivered.get(),
            dropped: metrics.dropped.get(),
            faults: FaultKind::ALL
                .map(|kind| (kind.as_str(), metrics.faults(kind)))
                .to_vec(),
            waiting: self.queue().events.len(),
            circuit: self.circuit.state(),
        }
    }
}

impl Drop for Inbox {
    /// Counts the undelivered events of a queue that was replaced before the thread knew of it, or at the router's end.
    fn drop(&mut self) {
        let undelivered = self.queue().events.len() as u64;
        self.metrics.dropped.inc_by(undelivered);
    }
}

/// Returns `true` if both are the same listener.
pub(super) fn is_same(one: &Arc<dyn EventListener>, other: &Arc<dyn EventListener>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
