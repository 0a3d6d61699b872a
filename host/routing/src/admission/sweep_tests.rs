//! Sweeps of the queue: one decision for each held request, one at a time.

use proptest::prelude::*;

use super::*;

/// Creates a request that was held after so many capacity events.
fn held(class: i32, tenant: &str, order: i8, evaluated_at: u64) -> Waiting {
    Waiting {
        class,
        tenant: tenant.into(),
        share: 1.0,
        tokens: 1,
        work: 1,
        runs_us: 0,
        start_by_us: u64::MAX,
        held: Some(Held {
            order: order.into(),
            evaluated_at: Some(evaluated_at),
            waits_for: None,
        }),
    }
}

/// Creates a queue with so many held requests, in the order of their numbers.
fn queue(requests: i8) -> FairQueue<()> {
    let mut queue = FairQueue::default();
    for (number, order) in (0..).zip(0..requests) {
        queue.insert(number, held(0, "", order, 0), ());
    }
    queue
}

/// Returns the next request without freed capacity.
fn next(queue: &mut FairQueue<()>) -> Option<u64> {
    queue.first(0, None, 0, None).map(|(number, _)| number)
}

/// Serves the next request of a sweep, which does not wait again. Returns its number.
fn swept(queue: &mut FairQueue<()>) -> Option<u64> {
    let number = next(queue)?;
    assert!(queue.begin_sweep_decision(number));
    queue.serve(number).unwrap();
    queue.end_sweep_decision();
    Some(number)
}

proptest! {
    #[test]
    fn a_sweep_decides_each_held_request_once_and_one_at_a_time_whatever_is_freed_meanwhile(
        requests in prop::collection::vec((-2..3_i32, 0..3_u8, -2..3_i8), 1..60),
        again in prop::collection::vec((-9..9_i8, any::<bool>()), 60),
    ) {
        let mut queue = FairQueue::default();
        for (number, (class, tenant, order)) in (0..).zip(&requests) {
            queue.insert(number, held(*class, &format!("t{tenant}"), *order, 0), ());
        }
        queue.begin_sweep();
        let (mut releases, mut decided) = (0, Vec::new());
        for (order, is_freed) in again {
            let Some((number, _)) = queue.first(0, None, releases, None) else { break };
            prop_assert!(queue.begin_sweep_decision(number));
            let (one, ()) = queue.serve(number).unwrap();
            decided.push(number);
            prop_assert!(queue.first(0, None, releases, None).is_none(), "one at a time");
            releases += u64::from(is_freed);
            // It is held again, anywhere in the order.
            queue.put_back(number, held(one.class, &one.tenant, order, releases), ());
            queue.end_sweep_decision();
        }
        prop_assert!(queue.first(0, None, releases, None).is_none());
        decided.sort_unstable();
        prop_assert_eq!(decided, (0..requests.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_sweep_leaves_out_who_is_gone_who_was_decided_for_capacity_and_who_came_later() {
    let mut queue = queue(4);
    queue.begin_sweep();
    queue.remove(0);
    let anywhere = CapacityEvent::anywhere();
    let (number, _) = queue.first(0, None, 1, Some(&anywhere)).unwrap();
    assert_eq!(number, 1);
    let (one, ()) = queue.serve(1).unwrap();
    queue.put_back(1, one, ());
    queue.insert(9, held(0, "", -1, 1), ());
    assert_eq!(swept(&mut queue), Some(2));
    assert_eq!(swept(&mut queue), Some(3));
    assert_eq!(swept(&mut queue), None);
}

#[test]
fn a_change_during_a_sweep_begins_it_again_with_one_decision_at_a_time() {
    let mut queue = queue(3);
    queue.begin_sweep();
    assert!(queue.begin_sweep_decision(0));
    let (one, ()) = queue.serve(0).unwrap();
    queue.begin_sweep();
    queue.put_back(0, one, ());
    assert_eq!(next(&mut queue), None);
    assert!(!queue.begin_sweep_decision(1), "another one is decided");
    queue.end_sweep_decision();
    assert!(!queue.begin_sweep_decision(0), "it saw the change");
    assert_eq!(swept(&mut queue), Some(1));
    queue.begin_sweep();
    assert_eq!([(); 3].map(|()| swept(&mut queue)), [Some(0), Some(2), None]);
}

#[test]
fn a_queue_without_held_requests_is_not_swept() {
    let mut queue = FairQueue::default();
    let waits = Waiting {
        held: None,
        ..held(0, "", 0, 0)
    };
    queue.insert(0, waits, ());
    queue.begin_sweep();
    assert!(!queue.begin_sweep_decision(0));
    assert_eq!(next(&mut queue), Some(0), "it waits for the budget");
}
