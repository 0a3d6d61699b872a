//! The replays of `mooncake-paper.md`, section 10: 8 workers of 3M tokens that compute one prompt after the other, mean
//! time to first token.

use std::path::Path;
use std::sync::Arc;

use routing::Policy;
use simulator::{
    ClusterSpec, CostSource, FetchRule, LatencyTargets, Policies, Profile, RESEARCH_BLOCKS, RunSpec, Summary,
    Trace, run,
};

use crate::native::native;
use crate::published::{least_requests, policy, round_robin, time_to_first_token};

/// Returns a recorded trace. The research's traces are not in a user's checkout.
fn recorded(name: &str) -> Option<Trace> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces");
    let path = root.join(format!("{name}_trace.jsonl"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    };
    Some(Trace::from_mooncake(name, &text).expect("a trace"))
}

fn replay(trace: &Trace, policy: Arc<dyn Policy>, speed: f64, fetch: FetchRule) -> Summary {
    let mut cluster = ClusterSpec::prefill_only(8, RESEARCH_BLOCKS);
    cluster.fetch = fetch;
    let mut spec = RunSpec::of(cluster);
    spec.router.costs = CostSource::Exact(Profile::default());
    let trace = trace.clone().at_speed(speed);
    let outcome = run(&trace, [Policies::One(policy)], &spec);
    assert_eq!(outcome.router.first_fault, None);
    Summary::of(&trace, &outcome, &LatencyTargets::default())
}

/// Policy, and the fetch rule of its cluster.
type Replayed = (Arc<dyn Policy>, FetchRule);

/// Checks the mean times to first token, in seconds, at these multiples of the recorded rate. They must be within so
/// large a share of the published ones.
#[track_caller]
fn check(trace: &Trace, (policy, fetch): &Replayed, published: &[(f64, f64)], share: f64) {
    for &(speed, published) in published {
        let mean = replay(trace, Arc::clone(policy), speed, *fetch).ttft_s.mean;
        assert!(
            (mean - published).abs() <= share * published,
            "{policy:?} x{speed}: {mean:.3} s, published {published} s"
        );
    }
}

/// Checks the recorded rate, half as much again and twice as much, if the trace is there.
#[track_caller]
fn check_at_three_speeds(replayed: &Replayed, [one, half_more, two]: [f64; 3], share: f64) {
    if let Some(trace) = recorded("conversation") {
        check(
            &trace,
            replayed,
            &[(1.0, one), (1.5, half_more), (2.0, two)],
            share,
        );
    }
}

#[test]
fn round_robin_comes_out_again_within_3_percent() {
    let round_robin = (policy("round robin", round_robin), FetchRule::Off);
    check_at_three_speeds(&round_robin, [4.98, 20.55, 203.3], 0.03);
}

#[test]
fn the_longest_match_collapses_as_published() {
    let longest_match = (native::<longest_match::LongestMatch>("{}"), FetchRule::Off);
    check_at_three_speeds(&longest_match, [6_849.0, 7_464.0, 7_772.0], 0.03);
}

/// The reported costs include the fetched blocks.
#[test]
fn algorithm_1_of_mooncake_comes_out_again_within_3_percent() {
    let mooncake = native::<mooncake_alg1::MooncakeAlg1>(r#"{"prefetch": "in-costs"}"#);
    check_at_three_speeds(&(mooncake, FetchRule::Ratio(1.5)), [1.18, 1.41, 4.06], 0.03);
}

/// The random draws differ from the published ones.
#[test]
fn its_form_without_a_threshold_comes_out_again_within_5_percent() {
    let without = native::<mooncake_alg1::MooncakeAlg1>(r#"{"prefetch": "in-costs", "theta": 1}"#);
    check_at_three_speeds(&(without, FetchRule::Cheapest), [1.17, 1.40, 4.04], 0.05);
}

/// Equal costs are broken by random draws, and near saturation one draw is 5 % from another.
#[test]
fn those_that_draw_lots_come_out_within_5_percent() {
    let least = (policy("least requests", least_requests), FetchRule::Off);
    check_at_three_speeds(&least, [2.63, 5.56, 202.7], 0.05);
    let greedy = (policy("ttft, own cache", time_to_first_token), FetchRule::Off);
    check_at_three_speeds(&greedy, [1.31, 1.79, 13.18], 0.05);
}

#[test]
fn the_shipped_policies_of_other_projects_come_out_within_5_percent() {
    let Some(trace) = recorded("conversation") else {
        return;
    };
    let shipped = [
        (native::<sglang_cache_aware::SglangCacheAware>("{}"), 2.72),
        (native::<preble_e2::PrebleE2>("{}"), 1.71),
        (native::<lmetric::Lmetric>("{}"), 2.37),
        (native::<dynamo_kv_cost::DynamoKvCost>("{}"), 1.70),
    ];
    for (policy, mean_s) in shipped {
        check(&trace, &(policy, FetchRule::Off), &[(1.5, mean_s)], 0.05);
    }
}
