//! Choices of single requests.

use conductor_policy_sdk::Configured;
use conductor_policy_sdk::testing::Scenario;

use super::*;

fn policy(params: &str) -> Configured<PredictedLatency> {
    Configured::new(params).unwrap()
}

/// Without chance: the best score, and no exploration.
const BEST: &str = r#"{"pick": "best", "explore": 0}"#;

/// Builds a fleet with predictions for a prompt of 1,000 tokens: 0.1 ms a token, 100 ms of prefill, 20 ms a token of
/// the answer.
fn fleet() -> Scenario {
    let names = ["a", "b", "c"];
    let mut fleet = Scenario::new(names);
    fleet.request("request.prompt-tokens", 1_000.0);
    for name in names {
        fleet
            .holds(name, 0.0)
            .set(name, "load.requests", 1.0)
            .set(name, "load.decoding", 1.0)
            .set(name, "cost.token-ms", 0.1)
            .set(name, "cost.prefill-ms", 100.0)
            .set(name, "cost.tbt-ms", 20.0);
    }
    fleet
}

/// Sets the wait before the prompt, in milliseconds.
fn wait(fleet: &mut Scenario, name: &str, ms: f64) {
    fleet.set(name, "load.prefill-tokens", ms * 10.0);
}

#[test]
fn without_limits_the_least_latency_is_chosen() {
    let mut fleet = fleet();
    wait(&mut fleet, "a", 50.0);
    wait(&mut fleet, "b", 10.0);
    wait(&mut fleet, "c", 90.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("b"));
}

#[test]
fn with_limits_workers_are_packed_as_far_as_they_meet_them() {
    let mut fleet = fleet();
    fleet
        .set_header("x-slo-ttft-ms", "150")
        .set_header("x-slo-tpot-ms", "50");
    wait(&mut fleet, "a", 51.0);
    wait(&mut fleet, "b", 10.0);
    wait(&mut fleet, "c", 49.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("c"), "151 ms of a are too many");
    let most = policy(r#"{"pick": "best", "explore": 0, "headroom": "most"}"#);
    assert_eq!(fleet.route(&most), Some("b"));
    fleet.set_header("x-slo-ttft-ms", "nonsense");
    assert_eq!(fleet.route(&policy(BEST)), Some("b"), "no limit");
    let by_default = policy(r#"{"pick": "best", "explore": 0, "ttft-ms": 150, "tpot-ms": 50}"#);
    assert_eq!(fleet.route(&by_default), Some("c"));
}

#[test]
fn slow_tokens_are_avoided_where_the_first_token_is_in_time_anyway() {
    let mut fleet = fleet();
    fleet
        .set_header("x-slo-ttft-ms", "500")
        .set_header("x-slo-tpot-ms", "30");
    for name in ["a", "b"] {
        fleet.set(name, "cost.tbt-ms", 40.0);
    }
    assert_eq!(fleet.route(&policy(BEST)), Some("c"));
}

#[test]
fn a_cached_prompt_is_followed_unless_that_costs_too_much_time() {
    let mut fleet = fleet();
    fleet.holds("a", 800.0).set("a", "cost.prefill-ms", 20.0);
    wait(&mut fleet, "a", 5_079.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("a"), "4,999 ms later");
    wait(&mut fleet, "a", 5_081.0);
    assert_ne!(fleet.route(&policy(BEST)), Some("a"));
    wait(&mut fleet, "a", 500.0);
    fleet.holds("a", 799.0);
    assert_ne!(fleet.route(&policy(BEST)), Some("a"), "less than 80 %");
}

#[test]
fn a_whole_prompt_in_a_cache_is_followed_before_the_limits_count() {
    let mut fleet = fleet();
    fleet
        .set_header("x-slo-ttft-ms", "150")
        .set_header("x-slo-tpot-ms", "50");
    fleet.holds("a", 990.0).set("a", "cost.prefill-ms", 1.0);
    wait(&mut fleet, "a", 400.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("a"));
    fleet.holds("a", 900.0);
    assert_ne!(
        fleet.route(&policy(BEST)),
        Some("a"),
        "limits first, then affinity"
    );
}

#[test]
fn if_all_would_be_late_an_idle_worker_is_chosen() {
    let mut fleet = fleet();
    fleet
        .set("c", "load.requests", 0.0)
        .set("c", "cost.prefill-ms", 900.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("c"));
}

#[test]
fn the_draw_follows_the_scores() {
    let policy = policy("{}");
    let mut fleet = fleet();
    wait(&mut fleet, "a", 90.0);
    wait(&mut fleet, "c", 90.0);
    let chosen = |fleet: &mut Scenario| (0..2_000).filter(|_| fleet.route(&policy) == Some("b")).count();
    // Scores of 1.01 against twice 0.01.
    assert!(chosen(&mut fleet) > 1_900);
    wait(&mut fleet, "a", 45.0);
    // 1.01 against 0.51 and 0.01.
    let share = chosen(&mut fleet);
    assert!((1_200..1_450).contains(&share), "{share}");
}

#[test]
fn without_predictions_memory_queue_and_prefix_decide() {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        fleet.set(name, "cost.token-ms", f64::NAN);
    }
    fleet.holds("b", 500.0).set("c", "load.queued", 1.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("b"));
    fleet.set("b", "engine.kv-usage", 0.9);
    assert_eq!(fleet.route(&policy(BEST)), Some("a"));
}

#[test]
fn a_decode_leg_counts_the_time_between_tokens_only() {
    let mut fleet = fleet();
    fleet.phase(Phase::Decode);
    wait(&mut fleet, "b", 900.0);
    fleet.set("b", "cost.tbt-ms", 10.0);
    assert_eq!(fleet.route(&policy(BEST)), Some("b"));
}
