//! Policies are told what becomes of requests and workers, off the path of requests.
//!
//! Where a request goes out, has its first token and ends, it leaves a note ([`LifecycleEvents`]), if any policy wants one: that look at an
//! atomic is all that a router without such policies pays. A note is put into a queue for each policy that wants its kind
//! (`inbox.rs`), which drops and counts where it is full and is never waited for. One thread of low priority (`thread.rs`) tells
//! them in batches, and has policies tick. Workers come and go with the snapshots.

mod inbox;
mod metrics;
mod thread;
mod trail;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use routing::{CircuitState, Event, EventKind, EventKinds, EventListener, Worker, WorkerId};

use self::inbox::Inbox;
pub(crate) use self::metrics::EventFamilies;
pub(crate) use self::trail::LifecycleEvents;
use crate::request::snapshot::Snapshot;

/// What a policy that is told events has been told.
#[derive(Debug, Clone)]
pub struct ListenerReport {
    /// Its name in the configuration.
    pub policy: String,
    /// The kinds it wants.
    pub kinds: Vec<&'static str>,
    /// Whether it works by the clock.
    pub ticks: bool,
    /// Events that it has handled, those of its versions before included.
    pub delivered: u64,
    /// Events that it was not told, or whose batch it failed at.
    pub dropped: u64,
    /// Failed calls of its handler or its tick, by kind, in a fixed order.
    pub faults: Vec<(&'static str, u64)>,
    /// Events that wait to be told.
    pub waiting: usize,
    /// Whether it is told anything at the moment.
    pub circuit: CircuitState,
}

/// Where notes go; the same one for all snapshots.
#[derive(Debug)]
pub(crate) struct EventHub {
    /// The beginning of the policies' clock.
    started: Instant,
    families: EventFamilies,
    /// [`EventKinds`] that somebody wants.
    wanted: AtomicU32,
    inboxes: RwLock<Box<[Arc<Inbox>]>>,
    /// Rung where there are other inboxes.
    bell: SyncSender<()>,
    /// Until the thread takes it.
    rung: Mutex<Option<Receiver<()>>>,
}

impl EventHub {
    pub(crate) fn new(families: EventFamilies) -> Arc<Self> {
        let (bell, rung) = sync_channel(1);
        Arc::new(Self {
            started: Instant::now(),
            families,
            wanted: AtomicU32::new(0),
            inboxes: RwLock::default(),
            bell,
            rung: Mutex::new(Some(rung)),
        })
    }

    /// Microseconds since the router's start.
    pub(crate) fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
    }

    /// Whether anybody wants one of these.
    pub(crate) fn wants_any(&self, kinds: EventKinds) -> bool {
        EventKinds::of_bits(self.wanted.load(Ordering::Relaxed)).meets(kinds)
    }

    /// Something happened.
    fn note(&self, note: &Note<'_>) {
        if !self.wants_any(EventKinds::NONE.with(note.kind)) {
            return;
        }
        for inbox in self.inboxes().iter().filter(|inbox| inbox.wants(note.kind)) {
            inbox.push(self, note);
        }
    }

    /// Another snapshot is about to be in force: its workers are told before requests to them, and its policies are those that are
    /// told. A version takes over from the one before at one moment, so that what they keep together has each event once.
    pub(crate) fn prepare(&self, before: Option<&Snapshot>, next: &Snapshot) {
        let (were, are) = (before.map(workers).unwrap_or_default(), workers(next));
        // Those that leave with it are still there.
        let mut there = were.clone();
        there.extend(&are);
        let mut inboxes = self.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut *inboxes);
        let inbox_of = |listener| {
            if let Some(kept) = known.iter().find(|inbox| inbox.is_of(&listener)) {
                self.tell_new(kept, &were, &are);
                return Arc::clone(kept);
            }
            let fresh = Inbox::new(listener, &self.families);
            if fresh.wants(EventKind::Joined) {
                fresh.begin(self, there.values().map(|worker| Note::joined(worker)));
            }
            Arc::new(fresh)
        };
        *inboxes = listeners(next).into_iter().map(inbox_of).collect();
        let wanted = inboxes
            .iter()
            .fold(0, |wanted, inbox| wanted | inbox.kinds().bits());
        self.wanted.store(wanted, Ordering::Relaxed);
        drop(inboxes);
        // A bell that is rung already will do.
        let _ = self.bell.try_send(());
    }

    /// Another snapshot is in force: no request that comes goes to the workers that are gone.
    pub(crate) fn part(&self, before: &Snapshot, next: &Snapshot) {
        let are = workers(next);
        for (_, worker) in workers(before).iter().filter(|(id, _)| !are.contains_key(id)) {
            self.note(&Note::of_worker(EventKind::Left, worker, f64::NAN));
        }
    }

    /// Workers that come, and those that do something else.
    fn tell_new(&self, inbox: &Inbox, were: &Workers<'_>, are: &Workers<'_>) {
        for (id, worker) in are {
            let role = worker.spec().role;
            let note = match were.get(id) {
                None => Note::joined(worker),
                Some(was) if was.spec().role != role => {
                    Note::of_worker(EventKind::Role, worker, role.number())
                }
                Some(_) => continue,
            };
            if inbox.wants(note.kind) {
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

/// Something that happened, before it has a time.
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

type Workers<'a> = BTreeMap<WorkerId, &'a Arc<Worker>>;

/// Those of all pools, once each.
fn workers(snapshot: &Snapshot) -> Workers<'_> {
    let members = snapshot.members();
    members
        .map(|member| (member.worker.id(), &member.worker))
        .collect()
}

/// Those of every policy that is in force on a route or asked beside it, once each.
fn listeners(snapshot: &Snapshot) -> Vec<Arc<dyn EventListener>> {
    let mut found: Vec<Arc<dyn EventListener>> = Vec::new();
    for route in &snapshot.routes {
        for versions in route.policies() {
            for listener in versions.in_force().policy.listeners() {
                if !found.iter().any(|known| is_same(known, &listener)) {
                    found.push(listener);
                }
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
