//! Breakdowns of small runs.

use super::*;
use crate::request::Request;

/// Request of a run: prompt tokens, session, tenant, and seconds to the first token.
type Case = (u32, u64, u32, Option<u64>);

fn breakdown(cases: &[Case]) -> Breakdown {
    let request = |(prompt_tokens, session, tenant, _): &Case| Request {
        at_us: 0,
        prompt_tokens: *prompt_tokens,
        output_tokens: 1,
        blocks: [].into(),
        session: Some(*session),
        grown_blocks: Box::default(),
        model: "".into(),
        after: None,
        tenant: Some(*tenant),
    };
    let trace = Trace {
        name: "test".to_owned(),
        block_tokens: 512,
        requests: cases.iter().map(request).collect(),
    };
    let course = |(.., ttft_s): &Case| RequestOutcome {
        first_token_us: ttft_s.map(|seconds| seconds * 1_000_000),
        end: End::Served,
        ..RequestOutcome::arrived(0)
    };
    let outcome = Outcome {
        courses: cases.iter().map(course).collect(),
        ..Outcome::default()
    };
    Breakdown::of(&trace, &outcome, &LatencyTargets::default())
}

#[test]
fn each_tenth_by_length_has_its_own_times() {
    let cases: Vec<Case> = (1..=20)
        .rev()
        .map(|at| (at * 100, at.into(), 0, Some(at.into())))
        .collect();
    let groups = breakdown(&cases).by_length;
    let lengths: Vec<u32> = groups.iter().map(|group| group.up_to_tokens).collect();
    assert_eq!(
        lengths,
        [200, 400, 600, 800, 1_000, 1_200, 1_400, 1_600, 1_800, 2_000]
    );
    assert!(groups.iter().all(|group| group.times.requests == 2));
    assert_eq!((groups[0].times.ttft_s, groups[9].times.ttft_s), (1.5, 19.5));
    assert_eq!(groups[9].times.p99_s, 20.0);
}

#[test]
fn late_turns_are_one_group() {
    let cases: Vec<Case> = (1..=9).map(|turn| (10, 1, 0, Some(turn))).collect();
    let groups = breakdown(&cases).by_turn;
    let counts: Vec<usize> = groups.iter().map(|group| group.times.requests).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 3]);
    assert_eq!((groups[0].times.ttft_s, groups[6].times.ttft_s), (1.0, 8.0));
}

#[test]
fn attainment_counts_requests_without_a_first_token() {
    let points = breakdown(&[
        (1, 1, 0, Some(2)),
        (1, 2, 0, Some(31)),
        (1, 3, 0, None),
        (1, 4, 0, None),
    ]);
    let at = |within_s: f64| {
        let point = points.attainment.iter().find(|point| point.within_s == within_s);
        point.unwrap().share
    };
    assert_eq!(
        (at(1.0), at(2.0), at(30.0), at(45.0), at(120.0)),
        (0.0, 0.25, 0.25, 0.5, 0.5)
    );
    assert_eq!(points.by_turn[0].times.in_time, 0.25);
}

#[test]
fn a_tenant_that_waits_longer_lowers_fairness() {
    let equal = breakdown(&[(1, 1, 0, Some(4)), (1, 2, 1, Some(4))]).fairness;
    assert_eq!((equal.tenants, equal.jain, equal.worst_in_time), (2, 1.0, 1.0));
    let fairness = breakdown(&[(1, 1, 0, Some(10)), (1, 2, 1, Some(30)), (1, 3, 1, Some(50))]).fairness;
    // Means of 10 and 40 s: 50^2 / (2 * 1,700).
    assert!((fairness.jain - 2_500.0 / 3_400.0).abs() < 1e-12);
    assert_eq!((fairness.slowest_s, fairness.fastest_s), (40.0, 10.0));
    assert_eq!(fairness.worst_in_time, 0.5);
    let starved = breakdown(&[(1, 1, 0, Some(10)), (1, 2, 1, None)]).fairness;
    assert!(starved.jain.is_nan() && starved.slowest_s.is_nan(), "{starved:?}");
    assert_eq!((starved.fastest_s, starved.worst_in_time), (10.0, 0.0));
    let alone = breakdown(&[(1, 1, 5, Some(10))]).fairness;
    assert!(alone.tenants == 1 && alone.jain.is_nan());
}

#[test]
fn refusals_are_shares_of_all_requests() {
    let course = |end| RequestOutcome {
        end,
        ..RequestOutcome::arrived(0)
    };
    let rejected = |reason| {
        course(End::Rejected {
            status: 429,
            computed: false,
            reason,
        })
    };
    let courses = [
        course(End::Served),
        rejected(RefusalReason::QueueTimeout),
        rejected(RefusalReason::Policy),
        course(End::Lost),
    ];
    let shares = RefusalShares::of(&courses);
    assert_eq!(
        (shares.queue_timeout, shares.policy, shares.lost),
        (0.25, 0.25, 0.25)
    );
    assert_eq!((shares.queue_full, shares.sum()), (0.0, 0.75));
}

#[test]
fn of_a_run_without_requests_nothing_is_known() {
    let nothing = breakdown(&[]);
    assert!(nothing.by_length.iter().all(|group| group.times.ttft_s.is_nan()));
    assert!(nothing.attainment.iter().all(|point| point.share.is_nan()));
    assert_eq!((nothing.refusals.sum(), nothing.fairness.tenants), (0.0, 0));
}
