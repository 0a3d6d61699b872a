//! Tests of event queues, without a router around them.

use std::fmt;
use std::time::Duration;

use routing::{
    DecisionInput, Event, FeaturePlan, Fleet, Policy, PolicyDescription, PolicyFault, PolicyVersions,
    Verdict, WorkerSpec,
};

use super::inbox::{BATCH, QUEUE};
use super::*;

/// Listener that keeps the request numbers of the events it receives.
#[derive(Default)]
struct Keeps(Mutex<Vec<u64>>);

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeps")
    }
}

impl EventListener for Keeps {
    fn policy(&self) -> &'static str {
        "keeps"
    }

    fn kinds(&self) -> EventKinds {
        EventKinds::REQUESTS
    }

    fn ticks(&self) -> bool {
        false
    }

    fn handle(&self, batch: &[Event], _: u64) -> Result<(), PolicyFault> {
        self.0.lock().unwrap().extend(batch.iter().map(|event| event.seq));
        Ok(())
    }

    fn tick(&self, _: u64) -> Result<Duration, PolicyFault> {
        Ok(Duration::ZERO)
    }

    fn rest(&self) {}
}

fn worker() -> Arc<Worker> {
    Arc::new(Worker::new(WorkerId(0), spec("a")))
}

fn spec(name: &str) -> WorkerSpec {
    WorkerSpec::mixed(name, "http://a")
}

/// Adds the dispatches of so many requests.
fn push(inbox: &Inbox, hub: &EventHub, requests: u64) {
    let worker = worker();
    for seq in 0..requests {
        let mut note = Note::of_worker(EventKind::Dispatched, &worker, 0.0);
        note.seq = seq;
        inbox.push(hub.clock, &note);
    }
}

#[test]
fn a_full_queue_drops_and_counts_what_comes_and_delivers_the_rest_in_batches() {
    let keeps = Arc::new(Keeps::default());
    let hub = EventHub::new(EventFamilies::default());
    let inbox = Inbox::new(Arc::clone(&keeps) as _, &hub.families);
    push(&inbox, &hub, QUEUE as u64 + 3);
    assert_eq!((inbox.report().waiting, inbox.report().dropped), (QUEUE, 3));
    let mut batches = 0;
    while inbox.deliver(hub.clock) {
        batches += 1;
        assert_eq!(keeps.0.lock().unwrap().len(), batches * BATCH);
    }
    assert_eq!(batches, QUEUE / BATCH);
    assert!(keeps.0.lock().unwrap().iter().copied().eq(0..QUEUE as u64));
    assert_eq!(inbox.report().delivered, QUEUE as u64);
}

#[test]
fn no_event_is_wanted_without_a_subscriber() {
    let hub = EventHub::new(EventFamilies::default());
    assert!(!hub.subscribes_any(EventKinds::REQUESTS));
    // Goes nowhere.
    hub.note(&Note::of_worker(EventKind::Finished, &worker(), 0.0));
}

#[test]
fn the_workers_it_begins_with_are_never_dropped_and_take_no_room() {
    let (keeps, worker) = (Arc::new(Keeps::default()), worker());
    let hub = EventHub::new(EventFamilies::default());
    let inbox = Inbox::new(Arc::clone(&keeps) as _, &hub.families);
    let fleet = QUEUE + 5;
    inbox.begin(hub.clock, (0..fleet).map(|_| Note::joined(&worker)));
    push(&inbox, &hub, QUEUE as u64 + 3);
    assert_eq!(
        (inbox.report().waiting, inbox.report().dropped),
        (fleet + QUEUE, 3)
    );
    while inbox.deliver(hub.clock) {}
    push(&inbox, &hub, QUEUE as u64 + 3);
    assert_eq!((inbox.report().waiting, inbox.report().dropped), (QUEUE, 6));
    let received = keeps.0.lock().unwrap();
    assert!(received[..fleet].iter().all(|seq| *seq == 0));
    assert!(received[fleet..].iter().copied().eq(0..QUEUE as u64));
}

#[test]
fn events_that_wait_when_a_version_is_replaced_are_delivered_and_lost_ones_counted() {
    let (keeps, requests) = (Arc::new(Keeps::default()), 3 * BATCH as u64 + 7);
    let hub = EventHub::new(EventFamilies::default());
    let inbox = Inbox::new(Arc::clone(&keeps) as _, &hub.families);
    push(&inbox, &hub, requests);
    inbox.close(hub.clock);
    assert!(keeps.0.lock().unwrap().iter().copied().eq(0..requests));
    push(&inbox, &hub, 5);
    drop(inbox);
    let next = Inbox::new(keeps, &hub.families).report();
    assert_eq!((next.delivered, next.dropped), (requests, 5));
}

/// Listener for workers and dispatches, for a policy that never decides.
#[derive(Debug, Default)]
struct Roll(Mutex<Vec<String>>);

#[derive(Debug, Clone, Default)]
struct Listening {
    roll: Arc<Roll>,
    plan: FeaturePlan,
}

impl Listening {
    /// Returns the events it received.
    fn received(&self, hub: &EventHub) -> Vec<String> {
        for inbox in &**hub.inboxes() {
            while inbox.deliver(hub.clock) {}
        }
        std::mem::take(&mut self.roll.0.lock().unwrap())
    }
}

impl EventListener for Roll {
    fn policy(&self) -> &'static str {
        "listening"
    }

    fn kinds(&self) -> EventKinds {
        EventKind::ALL.into_iter().collect()
    }

    fn ticks(&self) -> bool {
        false
    }

    fn handle(&self, batch: &[Event], _: u64) -> Result<(), PolicyFault> {
        let line = |event: &Event| format!("{} {}", event.kind.as_str(), event.worker.spec().name);
        self.0.lock().unwrap().extend(batch.iter().map(line));
        Ok(())
    }

    fn tick(&self, _: u64) -> Result<Duration, PolicyFault> {
        Ok(Duration::ZERO)
    }

    fn rest(&self) {}
}

impl PolicyDescription for Listening {
    fn name(&self) -> &'static str {
        "listening"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for Listening {
    fn decide(&self, _: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        unreachable!("there are no requests")
    }

    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        vec![Arc::clone(&self.roll) as _]
    }
}

fn workers(fleet: &Fleet) -> EventWorkers<'_> {
    let workers = fleet.workers().iter();
    workers.map(|worker| (worker.id(), worker)).collect()
}

/// Returns the listeners of a route that this policy decides on.
fn listeners_of(policy: &Listening) -> Vec<Arc<dyn EventListener>> {
    let versions = PolicyVersions::only(Arc::new(policy.clone()));
    listeners([&*versions, &*versions].into_iter())
}

#[test]
fn a_worker_has_joined_before_its_first_request_and_leaves_after_its_last() {
    let hub = &EventHub::new(EventFamilies::default());
    let policy = Listening::default();
    let (fleet, _) = Fleet::default().next(vec![spec("a")]);
    hub.prepare(&EventWorkers::new(), &workers(&fleet), listeners_of(&policy));
    let (next_fleet, _) = fleet.next(vec![spec("b")]);
    let dispatched = |fleet: &Fleet| {
        let note = Note::of_worker(EventKind::Dispatched, &fleet.workers()[0], 0.0);
        hub.note(&note);
    };
    // Requests of the snapshot before and of the next, while the one is put in the place of the other.
    hub.prepare(&workers(&fleet), &workers(&next_fleet), listeners_of(&policy));
    dispatched(&fleet);
    dispatched(&next_fleet);
    hub.part(&workers(&fleet), &workers(&next_fleet));
    let received = [
        "worker.joined a",
        "worker.joined b",
        "request.dispatched a",
        "request.dispatched b",
        "worker.left a",
    ];
    assert_eq!(policy.received(hub), received);

    // Of two versions each event goes to one.
    let newer = Listening::default();
    let (last_fleet, _) = next_fleet.next(vec![spec("b")]);
    dispatched(&next_fleet);
    hub.prepare(&workers(&next_fleet), &workers(&last_fleet), listeners_of(&newer));
    dispatched(&next_fleet);
    assert_eq!(newer.received(hub), ["worker.joined b", "request.dispatched b"]);
}
