//! Placements, holds and refusals.

use routing::{FaultKind, Phase, Rejection};

use super::*;
use crate::outcome::RefusalReason;
use crate::router::QueueSpec;

fn pair(row: u32, prefill: u32) -> Verdict {
    Verdict::Route(Choice {
        row,
        prefill: Some(prefill),
        score: 0.5,
    })
}

fn refusal(placement: &Placement) -> (u16, RefusalReason) {
    match placement {
        Placement::Reject { status, why, .. } => (*status, *why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_goes_to_the_worker_of_its_policy() {
    let policy = Scripted::row(&[], &[], 2);
    let mut router = router(&workers(3), &policy, &RouterSpec::default());
    let placement = router.place(0, arrives(0, &some_request()), 0);
    let expected = Placement::Dispatch {
        worker: 2,
        prefill: None,
        score: 2.0,
        matched: None,
        fetch: None,
    };
    assert_eq!(placement, expected);
    assert_eq!(policy.last().facts.phase, Phase::Mixed);
}

#[test]
fn a_fault_an_invalid_verdict_and_a_pass_fall_back_to_the_least_loaded() {
    let policy = Scripted::faulty(&[], &[], |input| match input.request.seq {
        1 => Ok(route(1)),
        2 => Err(PolicyFault {
            policy: "scripted".into(),
            kind: FaultKind::Trap,
            detail: "it broke".to_owned(),
        }),
        3 => Ok(route(9)),
        _ => Ok(Verdict::Pass),
    });
    let mut router = router(&workers(4), &policy, &RouterSpec::default());
    let places = [0, 1, 2, 3].map(|number| sent(&router.place(0, arrives(number, &some_request()), 0)).0);
    let mut distinct = places.to_vec();
    distinct.sort_unstable();
    assert_eq!((places[0], distinct), (1, vec![0, 1, 2, 3]));
    let counts = router.counts();
    assert_eq!((counts.calls, counts.fallbacks, counts.dispatched), (4, 3, 4));
    let faults: Vec<_> = counts.faults.into_iter().collect();
    assert_eq!(faults, [("invalid-verdict", 1), ("trap", 1)]);
    assert!(
        counts
            .first_fault
            .is_some_and(|report| report.contains("it broke"))
    );
}

#[test]
fn both_legs_are_placed_in_one_call_by_a_policy_that_reads_roles() {
    let policy = Scripted::new(&[], &["worker.role"], |_| pair(2, 1));
    let mut router = router(
        &roles(&[Role::Prefill, Role::Prefill, Role::Decode]),
        &policy,
        &RouterSpec::default(),
    );
    assert_eq!(
        sent(&router.place(0, arrives(0, &some_request()), 0)),
        (2, Some(1))
    );
    assert_eq!(policy.numbers(), [1.0, 1.0, 2.0]);
    assert_eq!(router.load(1).prefill_tokens, 1_024);
    assert_eq!((router.load(2).requests, router.load(2).prefill_tokens), (1, 0));
}

#[test]
fn a_pair_of_the_wrong_roles_is_a_fault() {
    let policy = Scripted::new(&[], &["worker.role"], |_| pair(0, 1));
    let mut router = router(
        &roles(&[Role::Prefill, Role::Decode]),
        &policy,
        &RouterSpec::default(),
    );
    assert_eq!(
        sent(&router.place(0, arrives(0, &some_request()), 0)),
        (1, Some(0))
    );
    assert_eq!(router.counts().faults["invalid-verdict"], 1);
    assert_eq!(router.counts().fallbacks, 1);
}

#[test]
fn other_policies_place_one_leg_after_the_other_among_those_who_can_do_it() {
    let policy = Scripted::row(&[], &["load.requests"], 0);
    let mut router = router(
        &roles(&[Role::Decode, Role::Prefill, Role::Mixed]),
        &policy,
        &RouterSpec::default(),
    );
    assert_eq!(
        sent(&router.place(0, arrives(0, &some_request()), 0)),
        (0, Some(1))
    );
    let seen = policy.seen.lock().unwrap();
    let calls: Vec<_> = seen
        .iter()
        .map(|seen| (seen.facts.phase, seen.ids.clone()))
        .collect();
    assert_eq!(calls, [(Phase::Prefill, vec![1, 2]), (Phase::Decode, vec![0])]);
}

#[test]
fn a_mixed_worker_that_begins_takes_the_whole_request() {
    let first = Scripted::row(&[], &[], 1);
    let second = Scripted::row(&[], &[], 0);
    let policies = Policies::ByPhase {
        prefill: Arc::clone(&first) as Arc<dyn Policy>,
        decode: Arc::clone(&second) as Arc<dyn Policy>,
    };
    let cluster = roles(&[Role::Decode, Role::Prefill, Role::Mixed]);
    let mut router = Router::new(&cluster, BLOCK, policies, &RouterSpec::default(), ONLY);
    assert_eq!(sent(&router.place(0, arrives(0, &some_request()), 0)), (2, None));
    assert!(second.seen.lock().unwrap().is_empty());
}

#[test]
fn the_prefill_leg_ends_before_the_decode_leg_is_measured() {
    let policy = Scripted::new(&[], &["worker.role"], |_| pair(1, 0));
    let cluster = roles(&[Role::Prefill, Role::Decode]);
    let mut router = router(&cluster, &policy, &RouterSpec::default());
    router.place(0, arrives(0, &some_request()), 0);
    router.first_token(70_000, 0, 0);
    assert_eq!(router.load(0).requests, 0);
    assert_eq!(router.load(0).ttft_ewma_ms, 70.0);
    assert_eq!((router.load(1).requests, router.load(1).decoding), (1, 0));
    router.first_token(90_000, 0, 1);
    assert_eq!(router.load(1).ttft_ewma_ms, 20.0);
    assert_eq!(router.load(1).decoding, 1);
    router.finished(200_000, 0, 10);
    assert_eq!(router.load(1).requests, 0);
}

#[test]
fn without_prefill_workers_a_decode_worker_does_it_all_where_that_is_allowed() {
    let policy = Scripted::row(&[], &[], 0);
    let cluster = roles(&[Role::Decode]);
    let mut alone = router(&cluster, &policy, &RouterSpec::default());
    assert_eq!(sent(&alone.place(0, arrives(0, &some_request()), 0)), (0, None));
    let spec = RouterSpec {
        decode_alone: false,
        ..RouterSpec::default()
    };
    let mut never = router(&cluster, &policy, &spec);
    let placement = never.place(0, arrives(0, &some_request()), 0);
    assert_eq!(refusal(&placement), (503, RefusalReason::NoWorker));
}

#[test]
fn without_a_decode_stage_prefill_workers_take_whole_requests() {
    let mut cluster = workers(2);
    cluster.workers[0].role = Role::Prefill;
    let policy = Scripted::row(&[], &["worker.role"], 0);
    let mut router = router(&cluster, &policy, &RouterSpec::default());
    assert_eq!(sent(&router.place(0, arrives(0, &some_request()), 0)), (0, None));
    assert_eq!(policy.numbers(), [0.0, 0.0]);
}

#[test]
fn a_held_request_is_reevaluated_in_time_and_refused_when_its_time_is_up() {
    let policy = Scripted::new(&["request.hold-left-ms", "pool.queued"], &[], |_| {
        hold(3.0, 5_000)
    });
    let spec = RouterSpec {
        queue: QueueSpec {
            limit: 2,
            timeout_us: 7_000_000,
        },
        ..RouterSpec::default()
    };
    let mut router = router(&workers(1), &policy, &spec);
    let held = |reevaluate_after_us| Placement::Hold {
        order: 3.0,
        reevaluate_after_us,
        waits_for: None,
    };
    assert_eq!(router.place(0, arrives(0, &some_request()), 0), held(5_000_000));
    assert_eq!(policy.numbers(), [7_000.0, 0.0]);
    assert_eq!(
        router.place(1_000, arrives(1, &some_request()), 0),
        held(5_000_000)
    );
    assert_eq!(policy.numbers(), [7_000.0, 1.0]);
    let third = router.place(2_000, arrives(2, &some_request()), 0);
    assert_eq!(refusal(&third), (429, RefusalReason::QueueFull));
    assert_eq!(
        router.place(5_000_000, arrives(0, &some_request()), 1),
        held(2_000_000)
    );
    assert_eq!(policy.numbers(), [2_000.0, 1.0]);
    assert_eq!(router.held(), 2);
    let late = router.place(7_000_000, arrives(0, &some_request()), 2);
    assert_eq!(refusal(&late), (503, RefusalReason::QueueTimeout));
    router.left(7_000_000, 1);
    assert_eq!(router.held(), 0);
}

#[test]
fn a_policys_refusal_is_passed_on() {
    let policy = Scripted::new(&[], &[], |_| {
        Verdict::Reject(Rejection {
            status: 429,
            retry_after_ms: 1_500,
            reason: "too much".to_owned(),
        })
    });
    let mut router = router(&workers(1), &policy, &RouterSpec::default());
    let expected = Placement::Reject {
        status: 429,
        retry_after_ms: 1_500,
        why: RefusalReason::Policy,
    };
    assert_eq!(router.place(0, arrives(0, &some_request()), 0), expected);
}

#[test]
fn a_worker_that_failed_rests_and_is_not_offered_the_same_request_again() {
    let policy = Scripted::row(&["request.tried"], &["worker.failures"], 0);
    let mut router = router(&workers(2), &policy, &RouterSpec::default());
    assert_eq!(sent(&router.place(0, arrives(0, &some_request()), 0)).0, 0);
    router.lost(10, 0, 0);
    assert_eq!(router.load(0).requests, 0);
    assert_eq!(sent(&router.place(20, arrives(0, &some_request()), 1)).0, 1);
    assert_eq!(policy.numbers(), [1.0, 0.0]);
    // Others keep away from it too, until it has rested.
    assert_eq!(sent(&router.place(30, arrives(1, &some_request()), 0)).0, 1);
    assert_eq!(
        sent(&router.place(1_000_010, arrives(2, &some_request()), 0)).0,
        0
    );
    assert_eq!(policy.numbers(), [0.0, 1.0, 0.0]);
    router.lost(1_000_020, 0, 1);
    let no_worker = router.place(1_000_030, arrives(0, &some_request()), 2);
    assert_eq!(refusal(&no_worker), (503, RefusalReason::NoWorker));
    router.first_token(1_000_040, 2, 0);
    router.place(1_000_050, arrives(3, &some_request()), 0);
    assert_eq!(policy.numbers(), [0.0, 0.0]);
}

#[test]
fn resting_workers_are_tried_rather_than_none_and_those_that_are_gone_are_not() {
    let policy = Scripted::row(&[], &[], 0);
    let mut router = router(&workers(2), &policy, &RouterSpec::default());
    router.place(0, arrives(0, &some_request()), 0);
    router.lost(0, 0, 0);
    router.gone(0, 1);
    assert_eq!(sent(&router.place(1, arrives(1, &some_request()), 0)).0, 0);
    router.gone(2, 0);
    let no_worker = router.place(3, arrives(2, &some_request()), 0);
    assert_eq!(refusal(&no_worker), (503, RefusalReason::NoWorker));
    router.back(4, 1);
    assert_eq!(sent(&router.place(5, arrives(3, &some_request()), 0)).0, 1);
}
