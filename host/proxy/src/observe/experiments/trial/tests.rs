//! Tests of assignments and stops over reloads.

use std::sync::atomic::AtomicUsize;

use experiment::{CanaryVerdict, Look};
use routing::{LeastLoaded, PolicyVersion};

use super::*;

/// A policy with a share of buckets.
type Share = (Arc<PolicyVersions>, u32);

fn policy() -> Arc<PolicyVersions> {
    PolicyVersions::only(Arc::new(LeastLoaded::default()))
}

/// Counts how often the held requests are decided again.
#[derive(Debug, Default)]
struct CountedWakes(AtomicUsize);

impl HeldRequests for CountedWakes {
    fn decide_again(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn next(arms: &[Share], before: Option<(&Arc<Trial>, &[Share])>) -> Arc<Trial> {
    over(arms, before, &Arc::default())
}

/// Returns the next experiment of a route to a pool with those held requests.
fn over(arms: &[Share], before: Option<(&Arc<Trial>, &[Share])>, held: &Arc<CountedWakes>) -> Arc<Trial> {
    let rule = StopRule::default();
    let known: Vec<&PolicyVersions> = before
        .iter()
        .flat_map(|(_, arms)| arms.iter().map(|(policy, _)| &**policy))
        .collect();
    let parts = TrialParts {
        pool: "main",
        route: "all".to_owned(),
        salt: 7,
        rule,
        arms: arms.iter().map(|(policy, share)| (&**policy, *share)).collect(),
        held: Arc::clone(held) as _,
    };
    let before = before.map(|(trial, _)| (trial, &*known));
    Trial::next(
        parts,
        before,
        &ArmFamilies::new(&crate::base::buckets::BucketBounds::default()),
    )
}

/// Returns the arm of each of many sessions.
fn arms(trial: &Trial) -> Vec<usize> {
    (0..20_000)
        .map(|session| trial.assign(Some(session), 0).arm)
        .collect()
}

fn worse(arm: usize) -> WorseArm {
    WorseArm {
        arm,
        cause: StopCause::Compared(
            Measure::Ttft,
            Look {
                estimate: 1.0,
                low: 0.5,
                high: 2.0,
                number: 1,
                samples: 200,
                control_samples: 200,
                verdict: CanaryVerdict::Worse,
            },
        ),
    }
}

#[test]
fn every_arm_has_its_share_of_the_sessions_and_of_requests_without_one() {
    let trial = next(&[(policy(), 7_000), (policy(), 500), (policy(), 2_500)], None);
    let by_seq = (0..20_000).map(|seq| trial.assign(None, seq).arm).collect();
    for places in [arms(&trial), by_seq] {
        let share = |arm| places.iter().filter(|place| **place == arm).count();
        assert!(share(1).abs_diff(1_000) < 120, "{}", share(1));
        assert!(share(2).abs_diff(5_000) < 250, "{}", share(2));
    }
}

#[test]
fn a_share_that_is_raised_only_moves_sessions_into_it() {
    let (control, canary) = (policy(), policy());
    let low = [(control.clone(), 9_500), (canary.clone(), 500)];
    let high = [(control, 8_000), (canary, 2_000)];
    let (before, after) = (arms(&next(&low, None)), arms(&next(&high, None)));
    let left = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| **before == 1 && **after == 0);
    assert_eq!(left.count(), 0);
    assert!(after.iter().sum::<usize>() > before.iter().sum::<usize>());
}

#[test]
fn a_trial_outlives_a_reload_that_changes_neither_versions_nor_shares() {
    let arms = [(policy(), 9_000), (policy(), 1_000)];
    let trial = next(&arms, None);
    // A reload links the same versions again.
    let again: Vec<Share> = arms
        .iter()
        .map(|(policy, share)| (Arc::new(PolicyVersions::new(policy.active().clone(), [])), *share))
        .collect();
    assert!(Arc::ptr_eq(&trial, &next(&again, Some((&trial, &arms)))));
    let other_share = [(arms[0].0.clone(), 8_000), (arms[1].0.clone(), 2_000)];
    assert!(!Arc::ptr_eq(&trial, &next(&other_share, Some((&trial, &arms)))));
}

#[test]
fn a_trial_and_its_stops_outlive_pipelines_that_are_put_together_again() {
    let pipeline = |id: &str| {
        let version = PolicyVersion {
            policy: Arc::new(LeastLoaded::default()),
            circuit: Arc::default(),
            id: id.into(),
        };
        Arc::new(PolicyVersions::new(version, []))
    };
    let arms_of = |canary: &str| [(pipeline("control"), 9_000), (pipeline(canary), 1_000)];
    let before = arms_of("1");
    let trial = next(&before, None);
    trial.stop(worse(1));
    let again = arms_of("1");
    let reloaded = next(&again, Some((&trial, &before)));
    assert!(Arc::ptr_eq(&trial, &reloaded));
    let other_control = [(pipeline("other"), 9_000), again[1].clone()];
    let reloaded = next(&other_control, Some((&trial, &before)));
    assert!(!arms(&reloaded).contains(&1));
    assert!(arms(&next(&arms_of("2"), Some((&trial, &before)))).contains(&1));
}

#[test]
fn a_stopped_canary_has_no_sessions_until_its_share_or_version_changes_or_it_is_resumed() {
    let before = [(policy(), 8_000), (policy(), 1_000), (policy(), 1_000)];
    let trial = next(&before, None);
    trial.stop(worse(1));
    let has = |trial: &Trial, arm| arms(trial).contains(&arm);
    assert!(!has(&trial, 1) && has(&trial, 2));

    // Another control, and another share of another canary.
    let after = [(policy(), 7_000), before[1].clone(), (before[2].0.clone(), 2_000)];
    let reloaded = next(&after, Some((&trial, &before)));
    assert!(!has(&reloaded, 1) && has(&reloaded, 2));
    assert!(reloaded.arms[1].stop().is_some(), "with its figures");

    let new_bytes = [after[0].clone(), (policy(), 1_000), after[2].clone()];
    assert!(has(&next(&new_bytes, Some((&reloaded, &after))), 1));
    let new_share = [after[0].clone(), (after[1].0.clone(), 1_100), after[2].clone()];
    assert!(has(&next(&new_share, Some((&reloaded, &after))), 1));

    assert_eq!(reloaded.resume("nobody"), 0);
    assert_eq!(reloaded.resume(before[1].0.name()), 1);
    assert!(has(&reloaded, 1));
}

#[test]
fn a_stop_by_a_request_that_began_before_a_reload_stops_the_new_trials_canary_too() {
    let before = [(policy(), 8_000), (policy(), 2_000)];
    let trial = next(&before, None);
    let after = [(policy(), 8_000), before[1].clone()];
    let reloaded = next(&after, Some((&trial, &before)));
    let new_share = [before[0].clone(), (before[1].0.clone(), 2_100)];
    let other = next(&new_share, Some((&trial, &before)));
    trial.stop(worse(1));
    assert!(!arms(&reloaded).contains(&1));
    assert!(reloaded.arms[1].stop().is_some(), "with its figures");
    assert!(arms(&other).contains(&1), "of another share nothing is known");
    assert_eq!(reloaded.resume(before[1].0.name()), 1);
    assert!(arms(&reloaded).contains(&1));
}

#[test]
fn a_stop_lets_the_held_requests_be_decided_again_once_whoever_decided_it() {
    let policies = [(policy(), 9_000), (policy(), 1_000)];
    let (own, other) = (Arc::<CountedWakes>::default(), Arc::<CountedWakes>::default());
    let stopped = over(&policies, None, &own);
    assert!(!stopped.is_stopped(1));
    stopped.stop(worse(1));
    stopped.stop(worse(1));
    let obeying = over(&policies, None, &other);
    let share = TrialShare::of(&obeying);
    assert!(share.obey_stop(1, "one", "worse") && !share.obey_stop(1, "one", "worse"));
    for (trial, wakes) in [(stopped, own), (obeying, other)] {
        assert!(trial.is_stopped(1) && !trial.is_stopped(0));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_stop_of_another_router_is_obeyed_and_is_no_news_of_this_one() {
    let policies = [(policy(), 9_000), (policy(), 1_000)];
    let (first, second) = (next(&policies, None), next(&policies, None));
    let (one, two) = (TrialShare::of(&first), TrialShare::of(&second));
    assert_eq!(one.identity(), two.identity());
    first.stop(worse(1));
    assert!(
        one.take_changed(1) && !one.take_changed(1),
        "a change is reported once"
    );
    assert!(one.arms()[1].is_stopped && one.arms()[1].cause.is_some());
    assert!(two.obey_stop(1, "one", "worse") && !two.obey_stop(1, "one", "worse"));
    assert!(!two.obey_stop(0, "one", "worse"), "the control never stops");
    assert!(!two.take_changed(1));
    let stopped = second.report(1).arms.remove(1).stopped.unwrap();
    assert_eq!((stopped.by.as_deref(), stopped.cause), (Some("one"), None));
    assert!(two.obey_resume(1) && !two.obey_resume(1));
    assert!(!two.arms()[1].is_stopped);
}
