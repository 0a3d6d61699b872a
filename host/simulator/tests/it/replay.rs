//! The replays of `mooncake-paper.md`, section 10: 8 workers of 3M tokens that compute one prompt after the other, mean time to first token.

use std::path::Path;
use std::sync::Arc;

use routing::Policy;
use simulator::{
    ClusterSpec, CostSource, FetchRule, Limits, Policies, Profile, RESEARCH_BLOCKS, RunSpec, Summary, Trace,
    run,
};

use crate::published::{Rule, least_requests, longest_match, policy, round_robin, time_to_first_token};

/// The research's traces are not in a user's checkout.
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
    Summary::of(&trace, &outcome, &Limits::default())
}

/// Mean times to first token, in seconds, within so large a share of the published ones.
#[track_caller]
fn check(
    trace: &Trace,
    name: &'static str,
    (rule, fetch): (Rule, FetchRule),
    published: [f64; 3],
    share: f64,
) {
    for (speed, published) in [1.0, 1.5, 2.0].into_iter().zip(published) {
        let mean = replay(trace, policy(name, rule), speed, fetch).ttft_s.mean;
        assert!(
            (mean - published).abs() <= share * published,
            "{name} x{speed}: {mean:.3} s, published {published} s"
        );
    }
}

#[test]
fn the_published_replays_come_out_again_within_3_percent() {
    let Some(trace) = recorded("conversation") else {
        return;
    };
    let blind = FetchRule::Off;
    check(
        &trace,
        "round robin",
        (round_robin, blind),
        [4.98, 20.55, 203.3],
        0.03,
    );
    check(
        &trace,
        "longest match",
        (longest_match, blind),
        [6_849.0, 7_464.0, 7_772.0],
        0.03,
    );
    let ratio = FetchRule::Ratio(1.5);
    check(
        &trace,
        "mooncake",
        (time_to_first_token, ratio),
        [1.18, 1.41, 4.06],
        0.03,
    );
    let cheapest = FetchRule::Cheapest;
    check(
        &trace,
        "ttft-best",
        (time_to_first_token, cheapest),
        [1.17, 1.40, 4.04],
        0.03,
    );
}

/// Equal costs are told apart by lot, and near saturation one lot is 5 % from another.
#[test]
fn those_that_draw_lots_come_out_within_5_percent() {
    let Some(trace) = recorded("conversation") else {
        return;
    };
    let blind = FetchRule::Off;
    check(
        &trace,
        "least requests",
        (least_requests, blind),
        [2.63, 5.56, 202.7],
        0.05,
    );
    check(
        &trace,
        "ttft, own cache",
        (time_to_first_token, blind),
        [1.31, 1.79, 13.18],
        0.05,
    );
}
