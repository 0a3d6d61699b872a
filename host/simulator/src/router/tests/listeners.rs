//! Policies that receive events.

use std::time::Duration;

use routing::{Event, EventKind, EventKinds};

use super::*;

/// Policy that keeps the events it receives, and ticks every second.
#[derive(Debug, Default)]
struct EventSubscriber {
    events: Mutex<Vec<(EventKind, u64, u32, f64)>>,
    ticks: Mutex<Vec<u64>>,
}

impl EventListener for EventSubscriber {
    fn policy(&self) -> &'static str {
        "scripted"
    }

    fn kinds(&self) -> EventKinds {
        EventKind::ALL.into_iter().collect()
    }

    fn ticks(&self) -> bool {
        true
    }

    fn handle(&self, batch: &[Event], _: u64) -> Result<(), PolicyFault> {
        let of = |event: &Event| (event.kind, event.seq, event.worker.id().0, event.number);
        self.events.lock().unwrap().extend(batch.iter().map(of));
        Ok(())
    }

    fn tick(&self, now_us: u64) -> Result<Duration, PolicyFault> {
        self.ticks.lock().unwrap().push(now_us);
        Ok(Duration::from_secs(1))
    }

    fn rest(&self) {}
}

fn listening(cluster: &ClusterSpec, decide: Verdict) -> (Router, Arc<EventSubscriber>) {
    let subscriber = Arc::<EventSubscriber>::default();
    let policy = Scripted {
        plan: FeaturePlan::resolve(&[], &["worker.role"]).unwrap(),
        decide: Box::new(move |_| Ok(decide.clone())),
        seen: Mutex::default(),
        listeners: vec![Arc::clone(&subscriber) as Arc<dyn EventListener>],
    };
    let router = router(cluster, &Arc::new(policy), &RouterSpec::default());
    (router, subscriber)
}

/// Returns the events since the last look without the joins of the start: kind, request, worker and number.
fn events(router: &mut Router, subscriber: &EventSubscriber, now_us: u64) -> Vec<(EventKind, u64, u32, f64)> {
    router.tick(now_us);
    let events = std::mem::take(&mut *subscriber.events.lock().unwrap());
    events
        .into_iter()
        .filter(|(kind, ..)| *kind != EventKind::Joined)
        .collect()
}

#[test]
fn each_leg_has_events_from_dispatch_to_end() {
    let verdict = Verdict::Route(Choice {
        row: 1,
        prefill: Some(0),
        score: f64::NAN,
    });
    let cluster = roles(&[Role::Prefill, Role::Decode]);
    let (mut router, subscriber) = listening(&cluster, verdict);
    router.place(1_000, arrives(0, &some_request()), 0);
    router.first_token(4_000, 0, 0);
    router.first_token(6_000, 0, 1);
    router.finished(9_000, 0, 10);
    use EventKind::{Dispatched, Finished, FirstToken};
    let expected = [
        (Dispatched, 1, 0, 1_024.0),
        (FirstToken, 1, 0, 3.0),
        (Finished, 1, 0, 3.0),
        (Dispatched, 1, 1, 1_024.0),
        (FirstToken, 1, 1, 2.0),
        (Finished, 1, 1, 5.0),
    ];
    assert_eq!(events(&mut router, &subscriber, 10_000), expected);
}

#[test]
fn failures_and_abandoned_requests_have_events() {
    let (mut router, subscriber) = listening(&workers(1), route(0));
    router.place(0, arrives(0, &some_request()), 0);
    router.lost(2_000, 0, 0);
    router.place(3_000, arrives(1, &some_request()), 0);
    router.left(5_000, 1);
    let ends: Vec<_> = events(&mut router, &subscriber, 6_000)
        .into_iter()
        .filter(|(kind, ..)| *kind != EventKind::Dispatched)
        .collect();
    let expected = [(EventKind::Failed, 1, 0, 2.0), (EventKind::Abandoned, 2, 0, 2.0)];
    assert_eq!(ends, expected);
}

#[test]
fn a_worker_that_joins_has_its_role_as_the_number() {
    let (mut router, subscriber) = listening(&roles(&[Role::Prefill, Role::Decode]), route(0));
    router.tick(0);
    router.gone(1_000, 1);
    router.back(2_000, 1);
    router.tick(3_000);
    let events = subscriber.events.lock().unwrap();
    let joined = events.iter().filter(|(kind, ..)| *kind == EventKind::Joined);
    let roles: Vec<_> = joined.map(|(_, _, worker, number)| (*worker, *number)).collect();
    assert_eq!(roles, [(0, 1.0), (1, 2.0), (1, 2.0)]);
    let left = events.iter().find(|(kind, ..)| *kind == EventKind::Left);
    assert!(left.is_some_and(|(.., number)| number.is_nan()));
}

#[test]
fn policies_tick_when_they_requested_it() {
    let (mut router, subscriber) = listening(&workers(1), route(0));
    assert_eq!(router.tick(0), Some(1_000_000));
    assert_eq!(router.tick(400_000), Some(1_000_000));
    assert_eq!(router.tick(1_000_000), Some(2_000_000));
    assert_eq!(*subscriber.ticks.lock().unwrap(), [0, 1_000_000]);
}
