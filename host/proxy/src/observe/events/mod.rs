//! Event delivery: policies are notified of what happens to requests and workers, off the path of requests.
//!
//! A request leaves a note when it is sent, has its first token and ends ([`LifecycleEvents`]), if any policy
//! subscribes to it. A router without such policies pays only one atomic load. A note is put into a queue for each
//! policy that subscribes to its kind (`inbox.rs`). A full queue drops the note and counts it, so that no request
//! waits.
//!
//! One thread of low priority (`thread.rs`) delivers the notes in batches, and calls policies' ticks. Workers come and
//! go with the snapshots.

mod clock;
mod inbox;
mod lifecycle_events;
mod metrics;
mod note;
mod thread;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use routing::{EventKind, EventKinds, EventListener, PolicyVersions, Worker, WorkerId};

use self::clock::EventClock;
pub use self::inbox::ListenerReport;
use self::inbox::{Inbox, is_same};
pub(crate) use self::lifecycle_events::{LifecycleEvents, RequestFacts};
pub(crate) use self::metrics::EventFamilies;
use self::note::Note;

/// Hub that distributes notes to the listeners. The same one for all snapshots.
#[derive(Debug)]
pub(crate) struct EventHub {
    clock: EventClock,
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
            clock: EventClock::start(),
            families,
            wanted: AtomicU32::new(0),
            inboxes: RwLock::default(),
            waker,
            woken: Mutex::new(Some(woken)),
        })
    }

    /// Returns the microseconds since the router's start.
    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_us()
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
            inbox.push(self.clock, note);
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
                fresh.begin(self.clock, there.values().map(|worker| Note::joined(worker)));
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
                inbox.push(self.clock, &note);
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

#[cfg(test)]
mod tests;
