//! Tests of admission: its order, the bounds of the queue, and that a budget is neither exceeded nor leaked.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use placement::HoldTerms;
use routing::{BudgetLimits, BudgetUse, CapacityEvent};
use tokio::time::Instant;

use super::admission_request::AdmissionRequest;
use super::capacity::Capacity;
use super::controller::{AdmissionController, QueueFull};
use super::metrics::AdmissionFamilies;
use super::permit::Permit;
use super::queue_entry::{QueueEntry, Unserved};

const LONG: Duration = Duration::from_secs(60);

pub(super) fn controller() -> Arc<AdmissionController> {
    AdmissionController::new(
        AdmissionFamilies::new(&crate::base::buckets::BucketBounds::default()).pool("main"),
    )
}

/// Creates an admission controller with these limits.
pub(super) fn budget(requests: Option<u64>, tokens: Option<u64>) -> Arc<AdmissionController> {
    let controller = controller();
    controller.activate(Capacity::fixed(requests, tokens));
    controller
}

pub(super) fn request(class: i32, tenant: &str, input: u64) -> AdmissionRequest {
    AdmissionRequest {
        class,
        tenant: tenant.into(),
        weight: 1.0,
        input,
        output: 0,
        first_token_by: None,
        runs: Duration::ZERO,
    }
}

pub(super) fn plain() -> AdmissionRequest {
    request(0, "", 1)
}

pub(super) fn pass(controller: &Arc<AdmissionController>, request: AdmissionRequest) -> Option<Permit> {
    let passed = controller.pass(|| request);
    passed.ok().map(|permit| permit.expect("it is counted"))
}

/// Enters a queue of at most `limit` entries, for at most `patience`.
pub(super) fn enter(
    controller: &Arc<AdmissionController>,
    limit: usize,
    patience: Duration,
    class: i32,
) -> Result<QueueEntry, QueueFull> {
    controller.enter(controller.turn(Instant::now() + patience), limit, class)
}

pub(super) fn entries<const N: usize>(controller: &Arc<AdmissionController>) -> [QueueEntry; N] {
    std::array::from_fn(|_| enter(controller, N, LONG, 0).unwrap())
}

pub(super) fn hold(order: f64) -> HoldTerms {
    HoldTerms {
        order,
        reevaluate_after: Duration::from_secs(10),
        waits_for: None,
    }
}

#[tokio::test]
async fn releases_wake_in_order_then_by_arrival() {
    let controller = controller();
    let [mut late, mut first, mut second] = entries(&controller);
    let one = plain();
    let mut late = pin!(late.hold(&one, hold(5.0), 0, None));
    let mut second = pin!(second.hold(&one, hold(1.0), 0, None));
    let mut first = pin!(first.hold(&one, hold(1.0), 0, None));
    assert!(poll!(&mut late).is_pending());
    assert!(poll!(&mut second).is_pending());
    assert!(poll!(&mut first).is_pending());
    controller.release(CapacityEvent::anywhere());
    assert!(poll!(&mut late).is_pending());
    assert!(poll!(&mut second).is_pending());
    assert!(poll!(&mut first).is_ready());
    controller.release(CapacityEvent::anywhere());
    assert!(poll!(&mut second).is_ready());
    assert!(poll!(&mut late).is_pending());
}

#[tokio::test]
async fn a_release_during_the_policys_call_is_not_missed() {
    let controller = controller();
    let seen = controller.releases();
    controller.release(CapacityEvent::anywhere());
    let [mut entry] = entries(&controller);
    assert!(entry.hold(&plain(), hold(0.0), seen, None).await.is_ok());
    assert_eq!(controller.waiting(), 0);
}

#[tokio::test]
async fn a_wake_of_one_who_left_goes_to_the_next() {
    let controller = controller();
    let [mut gone, mut next] = entries(&controller);
    let one = plain();
    let mut next = pin!(next.hold(&one, hold(1.0), 0, None));
    {
        let mut waits = pin!(gone.hold(&one, hold(0.0), 0, None));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut next).is_pending());
        controller.release(CapacityEvent::anywhere());
    }
    drop(gone);
    assert!(poll!(&mut next).is_ready());
}

#[tokio::test]
async fn a_dispatch_wakes_another_and_no_request_twice_for_one_release() {
    let controller = controller();
    let [mut first, mut second, mut third] = entries(&controller);
    let one = plain();
    let mut third = pin!(third.hold(&one, hold(2.0), 0, None));
    {
        let mut other = pin!(second.hold(&one, hold(1.0), 0, None));
        {
            let mut waits = pin!(first.hold(&one, hold(0.0), 0, None));
            assert!(poll!(&mut waits).is_pending());
            assert!(poll!(&mut other).is_pending());
            assert!(poll!(&mut third).is_pending());
            controller.release(CapacityEvent::anywhere());
            assert!(poll!(&mut waits).is_ready());
        }
        assert!(poll!(&mut other).is_pending());
        first.sent();
        assert!(poll!(&mut other).is_ready(), "there may be room for two");
    }
    let mut again = pin!(second.hold(&one, hold(1.0), 1, None));
    assert!(
        poll!(&mut again).is_pending(),
        "it was evaluated since the release"
    );
    assert!(poll!(&mut third).is_ready(), "the next may find room");
    controller.release(CapacityEvent::anywhere());
    assert!(poll!(&mut again).is_ready(), "the next release begins again");
}

#[tokio::test]
async fn a_wake_of_one_who_ends_unsent_goes_to_the_next() {
    let controller = controller();
    let [mut woken, mut next] = entries(&controller);
    let one = plain();
    let mut next = pin!(next.hold(&one, hold(1.0), 0, None));
    {
        let mut waits = pin!(woken.hold(&one, hold(0.0), 0, None));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut next).is_pending());
        controller.release(CapacityEvent::anywhere());
        assert!(poll!(&mut waits).is_ready());
    }
    assert!(poll!(&mut next).is_pending());
    drop(woken);
    assert!(poll!(&mut next).is_ready());
}

#[tokio::test]
async fn a_wake_of_one_held_again_goes_round_once() {
    let controller = controller();
    let [mut first, mut second] = entries(&controller);
    let one = plain();
    {
        let mut waits = pin!(first.hold(&one, hold(0.0), 0, None));
        let mut other = pin!(second.hold(&one, hold(1.0), 0, None));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut other).is_pending());
        controller.release(CapacityEvent::anywhere());
        assert!(poll!(&mut waits).is_ready());
        assert!(poll!(&mut other).is_pending());
    }
    let mut other = pin!(second.hold(&one, hold(1.0), 1, None));
    assert!(poll!(&mut other).is_pending(), "evaluated since the release");
    let mut again = pin!(first.hold(&one, hold(2.0), 1, None));
    assert!(poll!(&mut again).is_pending());
    assert!(
        poll!(&mut other).is_pending(),
        "no request is left to be evaluated"
    );
    controller.release(CapacityEvent::anywhere());
    assert!(poll!(&mut other).is_ready(), "the next release begins again");
}

#[tokio::test]
async fn the_queue_is_bounded_in_length_and_time() {
    let controller = controller();
    let mut entry = enter(&controller, 1, Duration::ZERO, 0).unwrap();
    assert_eq!(enter(&controller, 1, LONG, 0).unwrap_err(), QueueFull);
    let held = entry.hold(&plain(), hold(0.0), 0, None).await;
    assert_eq!(held.unwrap_err(), Unserved::Timeout);
    drop(entry);
    assert_eq!(controller.len(), 0);
    let mut entry = enter(&controller, 1, LONG, 0).unwrap();
    let soon = HoldTerms {
        reevaluate_after: Duration::from_millis(1),
        ..hold(0.0)
    };
    let held = entry.hold(&plain(), soon, 0, None).await;
    assert!(held.is_ok(), "re-evaluated when the time is up");
}

#[tokio::test]
async fn a_turn_ends_at_its_deadline_however_often_the_queue_is_entered() {
    let controller = controller();
    let turn = controller.turn(Instant::now());
    controller.enter(turn, 1, 0).unwrap().sent();
    let mut again = controller.enter(turn, 1, 0).unwrap();
    let held = again.hold(&plain(), hold(0.0), 0, None).await;
    assert_eq!(held.unwrap_err(), Unserved::Timeout);
}

#[tokio::test]
async fn room_for_several_admits_several_by_class_and_no_later_arrival() {
    let controller = budget(Some(2), None);
    let inside = [
        pass(&controller, plain()).unwrap(),
        pass(&controller, plain()).unwrap(),
    ];
    let [mut low, mut high, mut middle] = entries(&controller);
    let requests = [request(-1, "", 1), request(7, "", 1), plain()];
    let mut low = pin!(low.wait(&requests[0]));
    let mut high = pin!(high.wait(&requests[1]));
    let mut middle = pin!(middle.wait(&requests[2]));
    assert!(poll!(&mut low).is_pending());
    assert!(poll!(&mut high).is_pending());
    assert!(poll!(&mut middle).is_pending());
    assert_eq!(controller.counts(), [1, 1, 1]);
    drop(inside);
    assert!(poll!(&mut low).is_pending());
    assert!(pass(&controller, plain()).is_none(), "others are before it");
    let (high, middle) = (poll!(&mut high), poll!(&mut middle));
    assert!(high.is_ready() && middle.is_ready());
    assert_eq!(controller.budget().0.requests, 2);
    drop(middle);
    let std::task::Poll::Ready(Ok(permit)) = poll!(&mut low) else {
        panic!("there is room for it")
    };
    drop((high, permit));
    assert_eq!(controller.budget().0.requests, 0);
    assert!(pass(&controller, plain()).is_some());
}

#[tokio::test]
async fn a_permit_that_was_on_its_way_to_one_who_left_goes_to_the_next() {
    let controller = budget(Some(1), None);
    let inside = pass(&controller, plain()).unwrap();
    let [mut gone, mut next] = entries(&controller);
    let one = plain();
    let mut next = pin!(next.wait(&one));
    {
        let mut waits = pin!(gone.wait(&one));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut next).is_pending());
        drop(inside);
    }
    assert!(poll!(&mut next).is_ready());
}

#[tokio::test]
async fn one_that_waits_in_vain_leaves_its_place_and_whoever_it_kept_out_goes_in() {
    let controller = budget(None, Some(10));
    let inside = pass(&controller, request(0, "", 6)).unwrap();
    let [mut large, mut small] = entries(&controller);
    let (of_large, of_small) = (request(1, "", 9), request(0, "", 2));
    let mut small = pin!(small.wait(&of_small));
    {
        let mut waits = pin!(large.wait(&of_large));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut small).is_pending(), "the large one is before it");
    }
    assert!(poll!(&mut small).is_ready());
    drop(inside);
}

#[tokio::test]
async fn one_that_a_policy_holds_gives_its_room_to_others_and_gets_it_again() {
    let controller = budget(Some(1), None);
    let permit = pass(&controller, plain());
    let [mut held, mut other] = entries(&controller);
    let one = plain();
    let mut other = pin!(other.wait(&one));
    assert!(poll!(&mut other).is_pending());
    let mut held = pin!(held.hold(&one, hold(0.0), controller.releases(), permit));
    assert!(poll!(&mut held).is_pending());
    let std::task::Poll::Ready(Ok(mut used)) = poll!(&mut other) else {
        panic!("the room of the one that is held is free")
    };
    used.begin();
    controller.release(CapacityEvent::anywhere());
    assert!(poll!(&mut held).is_pending(), "the budget is full");
    drop(used);
    let std::task::Poll::Ready(Ok(Some(again))) = poll!(&mut held) else {
        panic!("there is room for it again")
    };
    assert_eq!(controller.budget().0.requests, 1);
    drop(again);
    assert_eq!(controller.budget().0.requests, 0);
}

#[tokio::test]
async fn a_full_queue_sheds_who_may_be_shed_for_who_is_more_important() {
    let controller = budget(Some(1), None);
    let _inside = pass(&controller, plain()).unwrap();
    let mut sheddable = enter(&controller, 1, LONG, -1).unwrap();
    let of_it = request(-1, "", 1);
    {
        let mut waits = pin!(sheddable.wait(&of_it));
        assert!(poll!(&mut waits).is_pending());
        assert_eq!(enter(&controller, 1, LONG, -1).unwrap_err(), QueueFull);
        let _more_important = enter(&controller, 1, LONG, 0).unwrap();
        assert_eq!(waits.await.unwrap_err(), Unserved::Shed);
        assert_eq!(enter(&controller, 1, LONG, 0).unwrap_err(), QueueFull);
        assert_eq!(controller.len(), 1);
    }
    drop(sheddable);
    assert_eq!(controller.len(), 0);
}

#[tokio::test]
async fn a_certain_refusal_is_known_before_the_request_is_enqueued() {
    let controller = budget(Some(1), None);
    assert!(!controller.is_crowded(0), "there is room");
    let _inside = pass(&controller, plain()).unwrap();
    let mut entry = enter(&controller, 1, LONG, -1).unwrap();
    let less = request(-1, "", 1);
    let mut waits = pin!(entry.wait(&less));
    assert!(poll!(&mut waits).is_pending());
    controller.admit_ready(None);
    assert!(controller.is_crowded(1) && !controller.is_crowded(2));
    assert!(controller.may_shed_for(0) && !controller.may_shed_for(-1));
}

#[tokio::test]
async fn a_larger_budget_lets_in_who_waits() {
    let controller = budget(Some(1), None);
    let _inside = pass(&controller, plain()).unwrap();
    let [mut entry] = entries(&controller);
    let one = plain();
    let mut waits = pin!(entry.wait(&one));
    assert!(poll!(&mut waits).is_pending());
    controller.activate(Capacity::fixed(Some(2), None));
    assert!(poll!(&mut waits).is_ready());
}

#[tokio::test]
async fn requests_at_other_routers_use_the_budget_and_free_it_for_who_waits() {
    let controller = budget(Some(3), None);
    let elsewhere = |requests| BudgetUse { requests, tokens: 0 };
    controller.set_elsewhere(7, elsewhere(2));
    assert_eq!(controller.len_of_fleet(), 7);
    let _inside = pass(&controller, plain()).unwrap();
    assert!(pass(&controller, plain()).is_none(), "three of three");
    let [mut entry] = entries(&controller);
    let one = plain();
    let mut waits = pin!(entry.wait(&one));
    assert!(poll!(&mut waits).is_pending());
    controller.set_elsewhere(0, elsewhere(3));
    assert!(poll!(&mut waits).is_pending());
    controller.set_elsewhere(0, elsewhere(1));
    let permit = poll!(&mut waits);
    assert!(permit.is_ready());
    assert_eq!(controller.shared_use().requests, 2);
}

#[tokio::test]
async fn a_router_that_lost_the_others_keeps_to_its_share_of_the_budget_over_reloads() {
    let controller = budget(Some(4), Some(1));
    controller.divide_budgets(NonZeroU32::new(2).unwrap());
    let limits = |requests, tokens| BudgetLimits { requests, tokens };
    assert_eq!(controller.budget().1, limits(Some(2), Some(1)));
    controller.activate(Capacity::fixed(Some(9), None));
    assert_eq!(controller.budget().1, limits(Some(4), None));
    controller.divide_budgets(NonZeroU32::MIN);
    assert_eq!(controller.budget().1, limits(Some(9), None));
}

#[tokio::test]
async fn tenants_take_turns_by_what_they_were_served() {
    let controller = budget(Some(1), None);
    let mut inside = pass(&controller, request(0, "heavy", 100)).unwrap();
    inside.begin();
    let mut entries: [QueueEntry; 4] = entries(&controller);
    let requests = [
        request(0, "heavy", 100),
        request(0, "heavy", 100),
        request(0, "light", 10),
        request(0, "light", 10),
    ];
    let mut waits: Vec<_> = entries
        .iter_mut()
        .zip(&requests)
        .map(|(entry, request)| Box::pin(entry.wait(request)))
        .collect();
    for wait in &mut waits {
        assert!(poll!(wait).is_pending());
    }
    let mut order = Vec::new();
    let mut tenants = vec!["heavy", "heavy", "light", "light"];
    while !waits.is_empty() {
        drop(inside);
        let mut admit_ready = None;
        for (at, wait) in waits.iter_mut().enumerate() {
            if let std::task::Poll::Ready(permit) = poll!(wait) {
                admit_ready = Some((at, permit.unwrap()));
                break;
            }
        }
        let (at, permit) = admit_ready.expect("there is room for one");
        inside = permit;
        inside.begin();
        order.push(tenants.remove(at));
        drop(waits.remove(at));
    }
    assert_eq!(order, ["light", "light", "heavy", "heavy"]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_charged_for_what_was_sent_beyond_its_estimate() {
    let controller = budget(Some(1), None);
    let share = || {
        let mut share = 0.0;
        controller.visit_tenants(|tenant| share += tenant.share);
        share
    };
    let mut permit = pass(&controller, request(0, "cuts", 100)).unwrap();
    permit.begin();
    let estimated = share();
    permit.served_part(permit.output);
    assert_eq!(share(), estimated, "no more than was expected");
    permit.served_part(permit.output + 1_000);
    assert!(share() > estimated + 999.0, "{estimated} and {}", share());
}

/// Runs many tasks on several threads that arrive, wait, are held, leave and end, on a small budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_never_exceeds_the_budget_and_leaves_nothing_behind() {
    const LIMIT: u64 = 3;
    let controller = budget(Some(LIMIT), Some(1_000));
    let visitor = |number: u64| {
        let controller = Arc::clone(&controller);
        async move {
            for round in 0..50 {
                let one = request((number % 3) as i32 - 1, "t", 1 + (number + round) % 7);
                let mut permit = match controller.pass(|| one.clone()) {
                    Ok(permit) => permit,
                    Err(one) => {
                        let Ok(mut entry) = enter(&controller, 16, Duration::from_millis(20), one.class)
                        else {
                            continue;
                        };
                        let Ok(permit) = entry.wait(&one).await else {
                            continue;
                        };
                        entry.sent();
                        Some(permit)
                    }
                };
                if let Some(permit) = &mut permit {
                    permit.begin();
                }
                assert!(controller.budget().0.requests <= LIMIT);
                tokio::task::yield_now().await;
                drop(permit);
                controller.release(CapacityEvent::anywhere());
            }
        }
    };
    let mut visitors = tokio::task::JoinSet::new();
    for number in 0..24 {
        visitors.spawn(visitor(number));
    }
    visitors.join_all().await;
    let (used, _) = controller.budget();
    assert_eq!((used.requests, used.tokens), (0, 0));
    assert_eq!((controller.len(), controller.waiting()), (0, 0));
}
