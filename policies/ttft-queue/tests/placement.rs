//! Placement, holding and queue order of single requests.

use conductor_policy_sdk::testing::Scenario;
use conductor_policy_sdk::{Configured, Role, Verdict};
use ttft_queue::TtftQueue;

fn policy(params: &str) -> Configured<TtftQueue> {
    Configured::new(params).expect("parameters of the policy")
}

/// Builds a fleet whose pool holds requests for up to 30 s, for a prompt of so many tokens that no worker has
/// cached.
fn fleet<const N: usize>(names: [&str; N], prompt: f64) -> Scenario {
    let mut fleet = Scenario::new(names);
    fleet
        .request("request.prompt-tokens", prompt)
        .request("request.hold-left-ms", 30_000.0);
    for name in names {
        fleet.holds(name, 0.0);
    }
    fleet
}

/// Gives a worker one request with so many tokens to compute.
fn busy(fleet: &mut Scenario, name: &str, tokens: f64) {
    fleet
        .set(name, "load.requests", 1.0)
        .set(name, "load.prefill-tokens", tokens);
}

/// Returns the verdict's sort key; NaN if the request is not held.
fn order(verdict: &Verdict) -> f64 {
    match verdict {
        Verdict::Queue { order, .. } => *order,
        _ => f64::NAN,
    }
}

#[test]
fn a_worker_with_little_queued_work_receives_the_next_request_immediately() {
    let mut fleet = fleet(["a", "b"], 8_000.0);
    busy(&mut fleet, "a", 4_096.0);
    busy(&mut fleet, "b", 90_000.0);
    assert_eq!(fleet.route(&policy("{}")), Some("a"));
    assert_eq!(fleet.waits_for(), None);
}

#[test]
fn a_request_waits_in_the_router_for_the_worker_that_is_best_for_it() {
    let mut fleet = fleet(["a", "b"], 50_000.0);
    busy(&mut fleet, "a", 10_000.0);
    busy(&mut fleet, "b", 5_000.0);
    fleet.holds("a", 45_000.0);
    let verdict = fleet.decide(&policy("{}"));
    assert_eq!(order(&verdict), 5_000.0);
    assert_eq!(fleet.waits_for(), Some(("a", 5_000)));
}

#[test]
fn held_work_ahead_of_a_request_raises_the_workers_cost() {
    let mut fleet = fleet(["a", "b"], 20_000.0);
    fleet.holds("a", 18_000.0);
    busy(&mut fleet, "a", 5_000.0);
    busy(&mut fleet, "b", 5_000.0);
    fleet.decide(&policy("{}"));
    assert_eq!(fleet.waits_for(), Some(("a", 2_000)));
    for _ in 0..3 {
        fleet.hold("a", 2_001);
    }
    fleet.decide(&policy(r#"{"backlog-price": 0}"#));
    assert_eq!(fleet.waits_for(), Some(("a", 2_000)), "longer requests go later");
    for _ in 0..20 {
        fleet.hold("a", 1_999);
    }
    fleet.decide(&policy(r#"{"backlog-price": 0}"#));
    assert_eq!(
        fleet.waits_for(),
        Some(("b", 20_000)),
        "shorter requests go first"
    );
}

#[test]
fn held_requests_raise_a_workers_cost_for_longer_requests() {
    let mut fleet = fleet(["a", "b"], 20_000.0);
    fleet.holds("a", 10_000.0);
    busy(&mut fleet, "a", 5_000.0);
    busy(&mut fleet, "b", 5_000.0);
    for _ in 0..4 {
        fleet.hold("a", 15_000);
    }
    fleet.decide(&policy(r#"{"backlog-price": 0}"#));
    assert_eq!(fleet.waits_for(), Some(("a", 10_000)));
    fleet.decide(&policy("{}"));
    assert_eq!(fleet.waits_for(), Some(("b", 20_000)));
}

#[test]
fn a_long_prompt_goes_to_a_worker_with_few_decoding_requests() {
    let mut fleet = fleet(["a", "b"], 8_000.0);
    for (name, answers) in [("a", 20.0), ("b", 2.0)] {
        fleet
            .set(name, "load.requests", answers)
            .set(name, "load.decoding", answers);
    }
    // The 4,000 more tokens of b cost less than the stall of 18 more answers.
    fleet.set("b", "load.prefill-tokens", 4_000.0);
    let without = policy(r#"{"stall-price": 0, "decode-tokens": 0}"#);
    assert_eq!(fleet.route(&without), Some("a"));
    assert_eq!(fleet.route(&policy(r#"{"decode-tokens": 0}"#)), Some("b"));
}

#[test]
fn shorter_requests_go_first_except_urgent_ones() {
    let policy = policy("{}");
    let held = |prompt: f64, waited_ms: f64| {
        let mut fleet = fleet(["a"], prompt);
        busy(&mut fleet, "a", 5_000.0);
        fleet.request("request.waited-ms", waited_ms);
        order(&fleet.decide(&policy))
    };
    let short = held(1_000.0, 0.0);
    let long = held(100_000.0, 0.0);
    // At 0.1 ms a token the prefill takes 10 s after 0.5 s of queue: 1 s of slack is left of 30 s.
    let urgent = held(100_000.0, 18_500.0);
    let more_urgent = held(100_000.0, 19_000.0);
    let late = held(100_000.0, 20_500.0);
    assert!(more_urgent < urgent && urgent < short && short < long && long < late);
}

#[test]
fn a_held_request_is_re_evaluated_when_it_becomes_urgent() {
    let mut fleet = fleet(["a"], 100_000.0);
    busy(&mut fleet, "a", 5_000.0);
    fleet.set("a", "cost.token-ms", 0.2);
    // Of 30 s, 20 s of its own work, 1 s of queue and the guard of 2 s leave 7 s.
    let verdict = fleet.decide(&policy("{}"));
    assert!(
        matches!(
            verdict,
            Verdict::Queue {
                ask_again_ms: 7_000,
                ..
            }
        ),
        "{verdict:?}"
    );
    fleet.request("request.hold-left-ms", 3_000.0);
    let verdict = fleet.decide(&policy("{}"));
    assert!(
        matches!(
            verdict,
            Verdict::Queue {
                ask_again_ms: 2_000,
                ..
            }
        ),
        "before the hold time expires: {verdict:?}"
    );
}

#[test]
fn a_request_that_could_be_lost_is_not_held() {
    let full = r#"{"most-held": 1}"#;
    let cases: [(&str, f64, &str); 4] = [
        ("request.hold-left-ms", f64::NAN, "{}"),
        ("request.hold-left-ms", 900.0, "{}"),
        ("request.tried", 1.0, "{}"),
        ("pool.queued", 1.0, full),
    ];
    for (number, value, params) in cases {
        let mut fleet = fleet(["a"], 1_000.0);
        busy(&mut fleet, "a", 50_000.0);
        fleet.request(number, value);
        assert_eq!(fleet.route(&policy(params)), Some("a"), "{number} = {value}");
    }
}

#[test]
fn a_late_request_is_rejected_if_enabled() {
    let refusing = policy(r#"{"refuse-late": true, "token-within-ms": 100}"#);
    let refused =
        |fleet: &mut Scenario| matches!(fleet.decide(&refusing), Verdict::Reject { status: 429, .. });
    let mut fleet = fleet(["a"], 100_000.0);
    busy(&mut fleet, "a", 199_000.0);
    assert!(!refused(&mut fleet), "10 s after 19.9 s");
    busy(&mut fleet, "a", 201_000.0);
    assert!(refused(&mut fleet));
    busy(&mut fleet, "a", 0.0);
    fleet.set("a", "cost.tbt-ms", 101.0);
    assert!(refused(&mut fleet), "the answer would be too slow");
    fleet.request("request.tried", 1.0);
    assert!(!refused(&mut fleet), "a tried request has caused work already");
    assert_eq!(fleet.route(&policy("{}")), Some("a"), "disabled by default");
}

#[test]
fn a_pair_waits_for_its_prefill_worker() {
    let mut fleet = fleet(["p", "q", "d"], 20_000.0);
    fleet
        .role("p", Role::Prefill)
        .role("q", Role::Prefill)
        .role("d", Role::Decode);
    assert!(fleet.pair(&policy("{}")).is_some());
    busy(&mut fleet, "p", 6_000.0);
    busy(&mut fleet, "q", 9_000.0);
    fleet.decide(&policy("{}"));
    assert_eq!(fleet.waits_for(), Some(("p", 20_000)));
}

#[test]
fn without_an_index_a_session_stays_on_its_worker() {
    let policy = policy("{}");
    let mut fleet = Scenario::new(["a", "b", "c"]);
    fleet.request("request.prompt-tokens", 10_000.0).session(Some(7));
    let home = fleet.route(&policy).unwrap_or_default().to_owned();
    busy(&mut fleet, &home, 5_000.0);
    assert_eq!(fleet.route(&policy), Some(&*home));
}
