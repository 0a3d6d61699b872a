//! Tests of re-evaluations after a change of policies: every held request once, one at a time.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::poll;
use routing::CapacityEvent;

use super::controller::AdmissionController;
use super::queue_entry::QueueEntry;
use super::release_tests::held_for_good;
use super::tests::{budget, controller, entries, hold, pass, plain};

/// More requests than the wake budget of a capacity event.
const MANY: usize = 40;

/// Requests that are held for good, in the order of their entries.
struct HeldRequests<'a>(Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>);

impl<'a> HeldRequests<'a> {
    /// Holds as many requests as there are counters of their re-evaluations.
    async fn enter<const N: usize>(
        controller: &'a Arc<AdmissionController>,
        evaluations: &'a [Cell<usize>; N],
    ) -> Self {
        let entries: [QueueEntry; N] = entries(controller);
        let held = entries.into_iter().zip(evaluations).enumerate();
        let held = held.map(|(order, (entry, evaluations))| {
            let waits = held_for_good(controller, entry, hold(order as f64), evaluations);
            Box::pin(waits) as Pin<Box<dyn Future<Output = ()>>>
        });
        let mut held = Self(held.collect());
        held.turn().await;
        held
    }

    /// Lets each request go on once.
    async fn turn(&mut self) {
        for held in &mut self.0 {
            assert!(poll!(held).is_pending());
        }
        // A task of tokio gets a number of messages only before it yields.
        tokio::task::yield_now().await;
    }

    /// Lets the requests go on until none is woken any more.
    async fn settle(&mut self) {
        for _ in 0..3 * self.0.len() {
            self.turn().await;
        }
    }
}

fn counts<const N: usize>(evaluations: &[Cell<usize>; N]) -> [usize; N] {
    std::array::from_fn(|at| evaluations[at].get())
}

#[tokio::test(start_paused = true)]
async fn a_change_of_policies_reevaluates_every_held_request_once_and_one_at_a_time() {
    let (controller, evaluations) = (controller(), [const { Cell::new(0) }; MANY]);
    let mut held = HeldRequests::enter(&controller, &evaluations).await;
    for times in 1..3 {
        controller.policies_changed();
        for _ in 0..3 * MANY {
            assert!(controller.waiting() >= MANY - 1, "one at a time");
            held.turn().await;
        }
        assert_eq!(counts(&evaluations), [times; MANY]);
        assert_eq!(controller.waiting(), MANY);
    }
}

#[tokio::test(start_paused = true)]
async fn freed_capacity_during_a_sweep_keeps_it_from_no_request() {
    let (controller, evaluations) = (controller(), [const { Cell::new(0) }; MANY]);
    let mut held = HeldRequests::enter(&controller, &evaluations).await;
    controller.policies_changed();
    for _ in 0..MANY {
        controller.release(CapacityEvent::anywhere());
        held.turn().await;
    }
    held.settle().await;
    assert!(counts(&evaluations).iter().all(|times| *times > 0));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_without_room_in_the_budget_goes_on_once_there_is_some() {
    let (controller, evaluations) = (budget(Some(1), None), [const { Cell::new(0) }; 3]);
    let inside = pass(&controller, plain()).unwrap();
    let mut held = HeldRequests::enter(&controller, &evaluations).await;
    controller.policies_changed();
    held.settle().await;
    assert_eq!(counts(&evaluations), [0; 3]);
    drop(inside);
    held.settle().await;
    assert_eq!(counts(&evaluations), [1; 3]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_sent_or_leave_pass_the_sweep_on() {
    let controller = controller();
    let [mut sent, mut leaves, mut last] = entries(&controller);
    let one = plain();
    let mut last = pin!(last.hold(&one, hold(2.0), 0, None));
    {
        let mut leaving = Box::pin(leaves.hold(&one, hold(1.0), 0, None));
        {
            let mut sending = pin!(sent.hold(&one, hold(0.0), 0, None));
            assert!(poll!(&mut sending).is_pending());
            assert!(poll!(&mut leaving).is_pending());
            assert!(poll!(&mut last).is_pending());
            controller.policies_changed();
            assert!(poll!(&mut sending).is_pending(), "others go on first");
            assert!(poll!(&mut sending).is_ready());
        }
        sent.sent();
        assert_eq!(controller.waiting(), 1);
        // Its client leaves before it is evaluated.
        assert!(poll!(&mut leaving).is_pending());
    }
    assert_eq!(controller.waiting(), 1);
    drop(leaves);
    assert_eq!(controller.waiting(), 0);
    assert!(poll!(&mut last).is_pending());
    assert!(poll!(&mut last).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_policies_during_an_evaluation_is_not_missed() {
    let controller = controller();
    let [mut entry] = entries(&controller);
    let seen = controller.releases();
    controller.policies_changed();
    assert!(entry.hold(&plain(), hold(0.0), seen, None).await.is_ok());
    assert_eq!(controller.waiting(), 0);
}
