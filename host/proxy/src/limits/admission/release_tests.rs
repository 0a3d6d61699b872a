//! Tests of re-evaluations after a release: their order and their maximum.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::poll;
use placement::HoldTerms;
use routing::{CapacityEvent, Worker, WorkerId, WorkerSpec};

use super::capacity::Capacity;
use super::controller::AdmissionController;
use super::queue_entry::QueueEntry;
use super::tests::{budget, controller, entries, hold, pass, plain, request};

/// Holds a request for good. Counts its unsuccessful re-evaluations.
pub(super) async fn held_for_good(
    controller: &AdmissionController,
    mut entry: QueueEntry,
    pause: HoldTerms,
    evaluations: &Cell<usize>,
) {
    let one = plain();
    while entry.hold(&one, pause, controller.releases(), None).await.is_ok() {
        evaluations.set(evaluations.get() + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_reevaluates_a_few_and_those_that_wait_for_the_worker_though_they_are_last() {
    const MANY: usize = 40;
    let controller = controller();
    let waits_for = |worker: u32| HoldTerms {
        waits_for: Some((WorkerId(worker), 1)),
        ..hold(10.0 - f64::from(worker))
    };
    let [here, there] = [Cell::new(0), Cell::new(0)];
    let entries: [QueueEntry; 2 * MANY] = entries(&controller);
    let mut waits: Vec<_> = (0..)
        .zip(entries)
        .map(|(at, entry): (u32, QueueEntry)| {
            let (worker, evaluations) = if at % 2 == 0 { (1, &here) } else { (2, &there) };
            Box::pin(held_for_good(&controller, entry, waits_for(worker), evaluations))
        })
        .collect();
    let mut turn = async || {
        for _ in 0..waits.len() {
            for wait in &mut waits {
                assert!(poll!(wait).is_pending());
            }
        }
    };
    turn().await;
    for times in 1..4 {
        tokio::time::advance(Duration::from_millis(10)).await;
        controller.release(CapacityEvent::at(WorkerId(1)));
        turn().await;
        assert_eq!((here.get(), there.get()), (2 * times, 4 * times));
    }
    controller.release(CapacityEvent::at(WorkerId(1)));
    turn().await;
    assert_eq!(
        (here.get(), there.get()),
        (8, 12),
        "soon after, of no use elsewhere"
    );
    // Polls the deferred event's own task too.
    tokio::time::sleep(Duration::from_millis(3)).await;
    turn().await;
    assert_eq!(
        here.get() + there.get(),
        8 + 12 + 4,
        "the first four in order, at the end of the pause"
    );
}

#[tokio::test]
async fn a_new_configuration_lets_held_requests_be_decided_again() {
    let controller = controller();
    let [mut entry] = entries(&controller);
    let one = plain();
    let mut wait = pin!(entry.hold(&one, hold(0.0), controller.releases(), None));
    assert!(poll!(&mut wait).is_pending());
    controller.activate(Capacity::default());
    assert!(poll!(&mut wait).is_ready());
}

/// Checks that overdue limits that have grown admit a queued request when the next one arrives. Returns whether that
/// one is refused.
async fn is_refused_with_overdue_limits(is_refused: impl Fn(&Arc<AdmissionController>) -> bool) -> bool {
    let controller = controller();
    controller.activate(Capacity::recomputed(1));
    let without_tokens = || request(0, "", 0);
    let _inside = controller.pass(without_tokens).unwrap();
    let [mut entry] = entries(&controller);
    let one = without_tokens();
    let mut waits = pin!(entry.wait(&one));
    assert!(poll!(&mut waits).is_pending());
    controller.capacity().replace(Capacity::recomputed(2));
    assert!(is_refused(&controller), "the limits are not due yet");
    assert!(poll!(&mut waits).is_pending());
    tokio::time::advance(Duration::from_secs(1)).await;
    let refused = is_refused(&controller);
    assert!(poll!(&mut waits).is_ready());
    refused
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_recomputes_the_limits_before_it_refuses() {
    assert!(!is_refused_with_overdue_limits(|controller| controller.is_crowded(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_recomputes_the_limits_lets_in_who_waits() {
    let pass = |controller: &Arc<AdmissionController>| controller.pass(|| request(0, "", 0)).is_err();
    assert!(
        is_refused_with_overdue_limits(pass).await,
        "the queued one has the room"
    );
}

#[tokio::test]
async fn those_who_leave_do_not_use_a_release_up() {
    let controller = controller();
    let aimed = |order| HoldTerms {
        waits_for: Some((WorkerId(1), 1)),
        ..hold(order)
    };
    let one = &plain();
    let [mut last, others @ ..]: [QueueEntry; 9] = entries(&controller);
    let leaves = |mut entry: QueueEntry| async move {
        let _permit = entry.hold(one, aimed(0.0), 0, None).await;
    };
    let mut waits: Vec<_> = others.into_iter().map(|entry| Box::pin(leaves(entry))).collect();
    for wait in &mut waits {
        assert!(poll!(wait).is_pending());
    }
    let mut last = pin!(last.hold(one, aimed(1.0), 0, None));
    assert!(poll!(&mut last).is_pending());
    controller.release(CapacityEvent::at(WorkerId(1)));
    for wait in &mut waits {
        assert!(poll!(wait).is_ready(), "decided when the one before it was gone");
    }
    drop(waits);
    assert!(poll!(&mut last).is_ready());
}

#[tokio::test]
async fn one_that_is_evaluated_more_slowly_than_capacity_is_freed_waits_in_the_end() {
    let controller = controller();
    let [mut entry] = entries(&controller);
    let one = plain();
    let mut rounds = 0;
    loop {
        let seen = controller.releases();
        controller.release(CapacityEvent::at(WorkerId(1)));
        let mut waits = pin!(entry.hold(&one, hold(0.0), seen, None));
        if poll!(&mut waits).is_pending() {
            break;
        }
        rounds += 1;
    }
    assert_eq!(rounds, 8);
}

#[test]
fn the_limit_falls_before_the_room_of_a_request_at_a_worker_that_left_is_given_back() {
    let controller = budget(None, None);
    let used_and_limit = || {
        let (used, limits) = controller.budget();
        (used.requests, limits.requests)
    };
    let gone = Arc::new(Worker::new(WorkerId(0), WorkerSpec::mixed("gone", "http://gone")));
    let lease = gone.load().book(1, 1);
    *controller.capacity() = Capacity::left_by(gone);
    controller.recompute_limits();
    let [here, there] = [(); 2].map(|()| pass(&controller, plain()).unwrap());
    assert_eq!(
        used_and_limit(),
        (2, Some(2)),
        "one here, and one at the worker that left"
    );
    drop(lease);
    // While the limit cannot fall, the room is not given back: another request would take it.
    let locked = controller.capacity();
    thread::scope(|scope| {
        let ending = scope.spawn(move || drop(there));
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(10));
            assert_eq!(used_and_limit(), (2, Some(2)));
        }
        drop(locked);
        ending.join().unwrap();
    });
    assert_eq!(used_and_limit(), (1, Some(1)));
    drop(here);
}
