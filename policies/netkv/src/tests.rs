//! Choices of decode workers, and the paper's own figures.

use conductor_policy_sdk::Configured;
use conductor_policy_sdk::testing::Scenario;

use super::*;

fn policy(params: &str) -> Configured<NetKv> {
    Configured::new(params).unwrap()
}

/// Builds one prefill worker in node 1, rack 10, pod 100, and a decode worker at each distance from it.
fn fleet(prompt: f64) -> Scenario {
    let mut fleet = Scenario::new(["prefill", "node", "rack", "pod", "far"]);
    fleet.request("request.prompt-tokens", prompt);
    let places = [
        ("prefill", [1.0, 10.0, 100.0]),
        ("node", [1.0, 10.0, 100.0]),
        ("rack", [2.0, 10.0, 100.0]),
        ("pod", [3.0, 20.0, 100.0]),
        ("far", [4.0, 30.0, 200.0]),
    ];
    for (name, [node, rack, pod]) in places {
        let role = if name == "prefill" {
            Role::Prefill
        } else {
            Role::Decode
        };
        fleet
            .role(name, role)
            .holds(name, 0.0)
            .set(name, "label.node", node)
            .set(name, "label.rack", rack)
            .set(name, "label.pod", pod);
    }
    fleet
}

/// Returns the predicted milliseconds of the chosen pair.
fn cost(fleet: &mut Scenario, policy: &Configured<NetKv>) -> f64 {
    match fleet.decide(policy) {
        Verdict::Pair { score, .. } => -score,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_nearest_decode_worker_is_chosen_if_all_are_idle() {
    let mut fleet = fleet(10_000.0);
    let policy = policy("{}");
    assert_eq!(fleet.pair(&policy), Some(("prefill", "node")));
    fleet.offer(&["prefill", "far", "pod", "rack"]);
    assert_eq!(fleet.pair(&policy), Some(("prefill", "rack")));
    fleet.offer(&["prefill", "far", "pod"]);
    assert_eq!(fleet.pair(&policy), Some(("prefill", "pod")));
}

#[test]
fn a_long_context_takes_the_time_that_the_paper_computes() {
    // 128K tokens of Llama-3-70B are 40 GB, with tensor parallelism of 4 10 GB for each pair of GPUs: 3.2 s at 25 Gbps.
    let mut fleet = fleet(131_072.0);
    fleet.offer(&["prefill", "far"]);
    let policy = policy(r#"{"token-bytes": 81920, "far-gbps": 25}"#);
    let ms = cost(&mut fleet, &policy);
    assert!((3_200.0..3_500.0).contains(&ms), "{ms}");
}

#[test]
fn a_far_worker_with_the_prefix_is_chosen_if_the_rest_is_sent_faster() {
    let mut fleet = fleet(10_000.0);
    fleet.offer(&["prefill", "rack", "far"]);
    // A quarter of the bandwidth: the prefix must be three quarters of the prompt.
    fleet.holds("far", 7_400.0);
    assert_eq!(fleet.pair(&policy("{}")), Some(("prefill", "rack")));
    fleet.holds("far", 7_600.0);
    assert_eq!(fleet.pair(&policy("{}")), Some(("prefill", "far")));
}

#[test]
fn the_order_of_distances_survives_an_error_of_42_points_in_the_congestion() {
    // The paper's example: bandwidths of 4 to 1, and the near tier moderately congested (30 %).
    let mut fleet = fleet(10_000.0);
    fleet.offer(&["prefill", "rack", "far"]);
    assert_eq!(
        fleet.pair(&policy(r#"{"rack-congestion": 0.72}"#)),
        Some(("prefill", "rack"))
    );
    assert_eq!(
        fleet.pair(&policy(r#"{"rack-congestion": 0.76}"#)),
        Some(("prefill", "far"))
    );
}

#[test]
fn own_transfers_under_way_count_before_any_telemetry() {
    let mut fleet = fleet(10_000.0);
    fleet.offer(&["prefill", "rack", "far"]);
    fleet.set("rack", "load.queued", 2.0);
    assert_eq!(
        fleet.pair(&policy("{}")),
        Some(("prefill", "rack")),
        "a third is more than a quarter"
    );
    fleet.set("rack", "load.queued", 4.0);
    assert_eq!(fleet.pair(&policy("{}")), Some(("prefill", "far")));
}

#[test]
fn a_full_batch_and_slow_steps_count_as_time() {
    let mut fleet = fleet(10_000.0);
    fleet.offer(&["prefill", "rack", "far"]);
    // The transfer takes 65.5 ms in the rack and 262 ms far away.
    fleet
        .set("rack", "cost.tbt-ms", 220.0)
        .set("far", "cost.tbt-ms", 20.0);
    assert_eq!(fleet.pair(&policy("{}")), Some(("prefill", "far")));
    fleet.set("rack", "cost.tbt-ms", 20.0);
    assert_eq!(fleet.pair(&policy("{}")), Some(("prefill", "rack")));
    fleet.set("rack", "load.requests", 270.0);
    assert_eq!(
        fleet.pair(&policy("{}")),
        Some(("prefill", "far")),
        "15 wait before it"
    );
}

#[test]
fn a_decode_worker_without_memory_for_the_prompt_is_avoided() {
    let mut fleet = fleet(10_000.0);
    fleet
        .set("node", "engine.kv-tokens", 100_000.0)
        .set("node", "engine.kv-usage", 0.9);
    assert_eq!(fleet.pair(&policy("{}")), Some(("prefill", "rack")));
    fleet.offer(&["prefill", "node"]);
    assert_eq!(
        fleet.pair(&policy("{}")),
        Some(("prefill", "node")),
        "the only one"
    );
}

#[test]
fn the_prefill_worker_has_the_least_price_by_cache_and_load() {
    let mut fleet = fleet(10_000.0);
    fleet
        .role("far", Role::Prefill)
        .set("prefill", "load.prefill-tokens", 1.0);
    assert_eq!(fleet.pair(&policy("{}")).map(|(prefill, _)| prefill), Some("far"));
    fleet
        .holds("prefill", 5_000.0)
        .set("prefill", "load.prefill-tokens", 6_000.0)
        .set("far", "load.requests", 1.0);
    assert_eq!(
        fleet.pair(&policy("{}")).map(|(prefill, _)| prefill),
        Some("prefill"),
        "its first token is later, but the other delays a waiting request by twice the work"
    );
}

#[test]
fn single_legs_and_mixed_workers_are_placed_too() {
    let mut fleet = fleet(10_000.0);
    fleet.set("node", "cost.tbt-ms", 90.0);
    fleet.phase(Phase::Decode).offer(&["node", "far"]);
    assert_eq!(
        fleet.route(&policy("{}")),
        Some("far"),
        "without a sender all are equally far"
    );
    fleet
        .phase(Phase::Mixed)
        .role("node", Role::Mixed)
        .role("far", Role::Mixed);
    fleet.holds("node", 5_000.0);
    assert_eq!(fleet.route(&policy("{}")), Some("node"));
}
