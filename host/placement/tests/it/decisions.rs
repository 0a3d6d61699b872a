//! Calls of policies, and the fallback.

use std::sync::Arc;

use placement::{CacheKnowledge, FallbackCause};
use routing::Role::{Decode, Mixed, Prefill};
use routing::{DecisionInput, FaultKind, Phase, PolicyFault, Verdict};

use crate::fixed::{FixedView, Step, route, scripted};

fn trap(_: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
    Err(PolicyFault {
        policy: "scripted".into(),
        kind: FaultKind::Trap,
        detail: String::new(),
    })
}

#[test]
fn a_policy_with_the_column_of_roles_places_both_legs_in_one_call() {
    let policy = scripted(&["worker.role"], |_| route(1, Some(0)));
    let view = FixedView::of(&[Prefill, Decode], policy);
    assert_eq!(
        view.decide(),
        (Some((1, Some(0))), vec![Step::Called(Phase::Mixed)])
    );
}

#[test]
fn other_policies_place_one_leg_after_the_other() {
    let policy = scripted(&["load.requests"], |_| route(0, None));
    let view = FixedView::of(&[Decode, Prefill], policy);
    let steps = vec![Step::Called(Phase::Prefill), Step::Called(Phase::Decode)];
    assert_eq!(view.decide(), (Some((0, Some(1))), steps));
}

#[test]
fn a_mixed_worker_that_is_chosen_to_prefill_takes_the_whole_request() {
    let mut view = FixedView::of(&[Decode, Prefill, Mixed], scripted(&[], |_| route(1, None)));
    view.has_phase_policies = true;
    assert_eq!(
        view.decide(),
        (Some((2, None)), vec![Step::Called(Phase::Prefill)])
    );
}

#[test]
fn the_fallback_decides_where_a_pair_makes_no_sense() {
    let policy = scripted(&["worker.role"], |_| route(0, Some(1)));
    let view = FixedView::of(&[Prefill, Decode], policy);
    let steps = vec![
        Step::Called(Phase::Mixed),
        Step::Fault("invalid-verdict"),
        Step::FellBack(Phase::Mixed, FallbackCause::Fault),
    ];
    assert_eq!(view.decide(), (Some((1, Some(0))), steps));
}

#[test]
fn a_pass_is_no_fault_whether_a_leg_or_a_pair_is_left_to_the_fallback() {
    let fell_back = |phase| vec![Step::Called(phase), Step::FellBack(phase, FallbackCause::Pass)];
    let view = FixedView::of(&[Mixed], scripted(&[], |_| Ok(Verdict::Pass)));
    assert_eq!(view.decide(), (Some((0, None)), fell_back(Phase::Mixed)));
    let pairing = scripted(&["worker.role"], |_| Ok(Verdict::Pass));
    let view = FixedView::of(&[Prefill, Decode], pairing);
    assert_eq!(view.decide(), (Some((1, Some(0))), fell_back(Phase::Mixed)));
    let view = FixedView::of(&[Prefill, Decode], scripted(&[], |_| Ok(Verdict::Pass)));
    let steps = [fell_back(Phase::Prefill), fell_back(Phase::Decode)].concat();
    assert_eq!(view.decide(), (Some((1, Some(0))), steps));
}

#[test]
fn a_policy_with_too_many_faults_is_not_called_for_a_while() {
    let mut view = FixedView::of(&[Mixed], scripted(&[], trap));
    let called = |steps: Vec<Step>| steps.contains(&Step::Called(Phase::Mixed));
    for _ in 0..5 {
        assert!(called(view.decide().1));
    }
    assert_eq!(
        view.decide(),
        (
            Some((0, None)),
            vec![Step::FellBack(Phase::Mixed, FallbackCause::CircuitOpen)]
        )
    );
    view.now_us = 1_000_000;
    assert!(called(view.decide().1), "a probe");
}

#[test]
fn without_a_fallback_a_fault_is_the_result() {
    let mut view = FixedView::of(&[Mixed], scripted(&[], trap));
    view.fallback = None;
    let steps = vec![
        Step::Called(Phase::Mixed),
        Step::Fault("trap"),
        Step::FellBack(Phase::Mixed, FallbackCause::Fault),
    ];
    assert_eq!(view.decide(), (None, steps));
}

#[test]
fn a_cache_counts_as_far_as_it_is_known_and_times_are_exact() {
    let columns = ["prefix.any-tokens", "worker.age-ms"];
    let policy = scripted(&columns, |input| {
        assert_eq!(input.numbers[..4], [0.0, 2.9, 10.0, 2.9]);
        assert!(input.numbers[4].is_nan());
        assert_eq!(input.queries.matched(routing::Tier::Device), [0, 10, 0]);
        assert_eq!(input.queries.holders(10), 1);
        route(1, None)
    });
    let mut view = FixedView::of(&[Mixed; 3], Arc::clone(&policy));
    view.workers[1].knowledge = CacheKnowledge::Assumed;
    view.workers[2].knowledge = CacheKnowledge::Unknown;
    assert_eq!(view.decide().0, Some((1, None)));
}
