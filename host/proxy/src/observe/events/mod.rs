//! Event delivery: policies are notified of what happens to requests and workers, off the path of requests.
//!
//! A request leaves a note when it is sent, has its first token and ends ([`LifecycleEvents`]), if any policy
//! subscribes to it. A router without such policies pays only one atomic load. A note is put into a queue for each
//! policy that subscribes to its kind (`inbox.rs`). A full queue drops the note and counts it, so that no request waits.
//!
//! One thread of low priority (`thread.rs`) delivers the notes in batches, and calls policies' ticks. Workers come and
//! go with the snapshots.

mod inbox;
mod lifecycle_events;
mod metrics;
mod thread;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use routing::{CircuitState, Event, EventKind, EventKinds, EventListener, PolicyVersions, Worker, WorkerId};

use self::inbox::Inbox;
pub(crate) use self::lifecycle_events::{LifecycleEvents, RequestFacts};
pub(crate) use self::metrics::EventFamilies;

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

/// Hub that distributes notes to the listeners. The same one for all snapshots.
#[derive(Debug)]
pub(crate) struct EventHub {
    /// Start of the policies' clock.
    started: Instant,
    families: EventFamilies,
    /// [`EventKinds`] that any policy subscribes to.
    wanted: AtomicU32,
    inboxes: RwLock<Box<[Arc<Inbox>]>>,
    /// Channel that wakes the thread when there are other inboxes.
    waker: SyncSender<()>,
    /// Wake-up channel, until the thread takes it.
    woken: Mutex<Option<Receiver<()>>>,
}

impl EventHub {
    pub(crate) fn new(families: EventFamilies) -> Arc<Self> {
        let (waker, woken) = sync_channel(1);
        Arc::new(Self {
            started: Instant::now(),
            families,
            wanted: AtomicU32::new(0),
            inboxes: RwLock::default(),
            waker,
            woken: Mutex::new(Some(woken)),
        })
    }

    /// Returns the microseconds since the router's start.
    pub(crate) fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// Returns `true` if any policy subscribes to one of these kinds.
    pub(crate) fn subscribes_any(&self, kinds: EventKinds) -> bool {
        EventKinds::of_bits(self.wanted.load(Ordering::Relaxed)).meets(kinds)
    }

    /// Adds a note to the queues of the policies that subscribe to it.
    fn note(&self, note: &Note<'_>) {
        if !self.subscribes_any(EventKinds::NONE.with(note.kind)) {
            return;
        }
        for inbox in self.inboxes().iter().filter(|inbox| inbox.subscribes(note.kind)) {
            inbox.push(self, note);
        }
    }

    /// Prepares for a snapshot with these workers, which becomes active next. Its new workers join before requests
    /// reach them, and events go to its listeners from now on. A version takes over from the one before at one moment.
    /// Their common state therefore has each event once.
    pub(crate) fn prepare(
        &self,
        were: &EventWorkers<'_>,
        are: &EventWorkers<'_>,
        listeners: Vec<Arc<dyn EventListener>>,
    ) {
        // Workers that leave are still there.
        let mut there = were.clone();
        there.extend(are);
        let mut inboxes = self.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut *inboxes);
        let inbox_of = |listener| {
            if let Some(kept) = known.iter().find(|inbox| inbox.is_of(&listener)) {
                self.send_new(kept, were, are);
                return Arc::clone(kept);
            }
            let fresh = Inbox::new(listener, &self.families);
            if fresh.subscribes(EventKind::Joined) {
                fresh.begin(self, there.values().map(|worker| Note::joined(worker)));
            }
            Arc::new(fresh)
        };
        *inboxes = listeners.into_iter().map(inbox_of).collect();
        let wanted = inboxes
            .iter()
            .fold(0, |wanted, inbox| wanted | inbox.kinds().bits());
        self.wanted.store(wanted, Ordering::Relaxed);
        drop(inboxes);
        // One pending wake-up is enough.
        let _ = self.waker.try_send(());
    }

    /// Records the workers that left with the snapshot before: no new request goes to them.
    pub(crate) fn part(&self, were: &EventWorkers<'_>, are: &EventWorkers<'_>) {
        for (_, worker) in were.iter().filter(|(id, _)| !are.contains_key(id)) {
            self.note(&Note::of_worker(EventKind::Left, worker, f64::NAN));
        }
    }

    /// Reports new workers, and those whose role has changed.
    fn send_new(&self, inbox: &Inbox, were: &EventWorkers<'_>, are: &EventWorkers<'_>) {
        for (id, worker) in are {
            let role = worker.spec().role;
            let note = match were.get(id) {
                None => Note::joined(worker),
                Some(was) if was.spec().role != role => {
                    Note::of_worker(EventKind::Role, worker, role.number())
                }
                Some(_) => continue,
            };
            if inbox.subscribes(note.kind) {
                inbox.push(self, &note);
            }
        }
    }

    fn inboxes(&self) -> RwLockReadGuard<'_, Box<[Arc<Inbox>]>> {
        self.inboxes.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reports(&self) -> Vec<ListenerReport> {
        self.inboxes().iter().map(|inbox| inbox.report()).collect()
    }
}

/// Event that has no time yet.
struct Note<'a> {
    kind: EventKind,
    seq: u64,
    session: Option<u64>,
    worker: &'a Arc<Worker>,
    number: f64,
}

impl<'a> Note<'a> {
    fn joined(worker: &'a Arc<Worker>) -> Self {
        Self::of_worker(EventKind::Joined, worker, worker.spec().role.number())
    }

    fn of_worker(kind: EventKind, worker: &'a Arc<Worker>, number: f64) -> Self {
        Self {
            kind,
            seq: 0,
            session: None,
            worker,
            number,
        }
    }

    fn at(&self, at_us: u64) -> Event {
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

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Workers of all pools of a snapshot, once each.
pub(crate) type EventWorkers<'a> = BTreeMap<WorkerId, &'a Arc<Worker>>;

/// Returns the listeners of the active versions of these policies, once each.
pub(crate) fn listeners<'a>(
    policies: impl Iterator<Item = &'a PolicyVersions>,
) -> Vec<Arc<dyn EventListener>> {
    let mut found: Vec<Arc<dyn EventListener>> = Vec::new();
    for versions in policies {
        for listener in versions.active().policy.listeners() {
            if !found.iter().any(|known| is_same(known, &listener)) {
                found.push(listener);
            }
        }
    }
    found
}

fn is_same(one: &Arc<dyn EventListener>, other: &Arc<dyn EventListener>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

#[cfg(test)]
mod tests;
