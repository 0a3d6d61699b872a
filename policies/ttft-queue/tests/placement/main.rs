//! Placement, holding and queue order of single requests.

mod homes;

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
fn a_worker_that_is_free_when_a_dispatch_arrives_receives_the_next_request_immediately() {
    let policy = policy("{}");
    let mut fleet = fleet(["a", "b"], 8_000.0);
    busy(&mut fleet, "b", 90_000.0);
    // Without a measurement a dispatch takes 50 ms: 500 tokens at 0.1 ms.
    busy(&mut fleet, "a", 500.0);
    assert_eq!(fleet.route(&policy), Some("a"));
    assert_eq!(fleet.waits_for(), None);
    busy(&mut fleet, "a", 501.0);
    assert_eq!(fleet.route(&policy), None);
    fleet.set("a", "cost.request-ms", 60.0);
    assert_eq!(fleet.route(&policy), Some("a"), "its dispatches take longer");
    fleet.set("a", "cost.token-ms", 0.2);
    assert_eq!(fleet.route(&policy), None, "its tokens take longer");
}

#[test]
fn a_worker_that_writes_answers_has_prompts_queued_for_its_next_steps() {
    let policy = policy("{}");
    let mut fleet = fleet(["a"], 8_000.0);
    // 70 ms of prompts. A dispatch takes 50 ms, three steps 24.
    busy(&mut fleet, "a", 700.0);
    fleet.set("a", "cost.tbt-ms", 8.0);
    assert_eq!(fleet.route(&policy), None, "it has no steps without answers");
    fleet.set("a", "load.decoding", 5.0);
    assert_eq!(fleet.route(&policy), Some("a"));
    fleet.set("a", "cost.tbt-ms", 6.0);
    assert_eq!(fleet.route(&policy), None, "its steps are shorter");
}

/// Gives a worker measured times: tokens of 0.1 ms, and answers whose tokens come so many milliseconds apart.
fn writes(fleet: &mut Scenario, name: &str, between_ms: f64) {
    fleet
        .set(name, "cost.token-ms", 0.1)
        .set(name, "tbt.ewma-ms", between_ms);
}

#[test]
fn a_short_prompt_shares_the_last_step_of_a_long_one() {
    let policy = policy("{}");
    let sent = |prompt: f64, running: f64, between_ms: f64, others: f64| {
        let mut fleet = fleet(["a"], prompt);
        busy(&mut fleet, "a", running);
        writes(&mut fleet, "a", between_ms);
        fleet.request("pool.queued", others);
        fleet.route(&policy) == Some("a")
    };
    assert!(sent(8_000.0, 17_000.0, 20.0, 0.0));
    assert!(!sent(9_000.0, 17_000.0, 20.0, 0.0), "a step is too short for it");
    assert!(!sent(8_000.0, 16_000.0, 20.0, 0.0), "the running prompt is short");
    assert!(!sent(8_000.0, 17_000.0, 20.0, 1.0), "others are held");
    // A mean of 0 is kept as the least positive number.
    assert!(!sent(8_000.0, 17_000.0, f64::MIN_POSITIVE, 0.0), "no answers");
}

#[test]
fn a_prompt_that_runs_beside_answers_makes_no_request_late() {
    let policy = policy(r#"{"first-token-within-s": 10}"#);
    let mut fleet = fleet(["a", "b"], 60_000.0);
    fleet.holds("a", 50_000.0);
    // With the 9.5 s of the running prompt and its own second the request would be late on `a`.
    busy(&mut fleet, "a", 95_000.0);
    busy(&mut fleet, "b", 5_000.0);
    writes(&mut fleet, "a", 0.0);
    fleet.set("a", "cost.prefill-ms", 1_000.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("b", 60_000)));
    writes(&mut fleet, "a", 20.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("a", 10_000)));
}

#[test]
fn a_worker_that_was_sent_a_prompt_lately_is_spared() {
    let route = |params: &str, between_ms: f64, answers: f64, after_ms: u64| {
        let policy = policy(params);
        let mut fleet = fleet(["a", "b"], 4_000.0);
        for name in ["a", "b"] {
            writes(&mut fleet, name, between_ms);
            fleet
                .set(name, "load.requests", answers)
                .set(name, "load.decoding", answers);
        }
        fleet.holds("a", 2_000.0).clock(1_000_000);
        assert_eq!(fleet.route(&policy), Some("a"));
        fleet.clock(1_000_000 + 1_000 * after_ms);
        fleet.route(&policy).map(str::to_owned)
    };
    assert_eq!(route("{}", 20.0, 1.0, 100).as_deref(), Some("b"));
    let old = route("{}", 20.0, 1.0, 9_000);
    assert_eq!(old.as_deref(), Some("a"), "its answer is older");
    let over = route("{}", 20.0, 0.0, 100);
    assert_eq!(over.as_deref(), Some("a"), "its answer is over");
    let silent = route("{}", 0.0, 1.0, 100);
    assert_eq!(silent.as_deref(), Some("a"), "it writes no answers");
    let free = route(r#"{"stall-price": 0}"#, 20.0, 1.0, 100);
    assert_eq!(free.as_deref(), Some("a"), "stalls have no price");
}

#[test]
fn a_short_prompt_spares_no_worker() {
    let route = |prefill_ms: f64| {
        let policy = policy("{}");
        let mut fleet = fleet(["a", "b"], 4_000.0);
        for name in ["a", "b"] {
            writes(&mut fleet, name, 20.0);
            fleet
                .set(name, "load.requests", 1.0)
                .set(name, "load.decoding", 1.0)
                .set(name, "cost.prefill-ms", prefill_ms);
        }
        fleet.holds("a", 2_000.0).clock(1_000_000);
        fleet.route(&policy);
        fleet.route(&policy).map(str::to_owned)
    };
    assert_eq!(route(60.0).as_deref(), Some("b"));
    assert_eq!(route(40.0).as_deref(), Some("a"));
}

#[test]
fn a_held_request_is_no_recent_prompt() {
    let policy = policy("{}");
    let mut fleet = fleet(["a", "b"], 4_000.0);
    writes(&mut fleet, "a", 20.0);
    writes(&mut fleet, "b", 20.0);
    fleet.holds("a", 2_000.0);
    busy(&mut fleet, "a", 3_000.0);
    busy(&mut fleet, "b", 60_000.0);
    for _ in 0..9 {
        assert_eq!(fleet.route(&policy), None);
        assert_eq!(fleet.waits_for(), Some(("a", 2_000)));
    }
    busy(&mut fleet, "a", 0.0);
    busy(&mut fleet, "b", 0.0);
    assert_eq!(fleet.route(&policy), Some("a"));
}

#[test]
fn a_part_of_a_running_prompt_is_taken_as_computed_beside_answers() {
    let policy = policy("{}");
    let mut fleet = fleet(["a", "b"], 1_000.0);
    busy(&mut fleet, "a", 12_000.0);
    busy(&mut fleet, "b", 9_000.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("b", 1_000)));
    // 8,400 of the 12,000 tokens are left.
    writes(&mut fleet, "a", 20.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("a", 1_000)));
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
    fleet.decide(&policy("{}"));
    assert_eq!(fleet.waits_for(), Some(("a", 2_000)), "longer requests go later");
    for _ in 0..20 {
        fleet.hold("a", 1_999);
    }
    fleet.decide(&policy("{}"));
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
    fleet.decide(&policy("{}"));
    assert_eq!(fleet.waits_for(), Some(("a", 10_000)));
    for _ in 0..4 {
        fleet.hold("a", 15_000);
    }
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
    // The 8,000 more tokens of b cost less than the stall of 18 more answers.
    fleet.set("b", "load.prefill-tokens", 8_000.0);
    assert_eq!(fleet.route(&policy(r#"{"stall-price": 0}"#)), Some("a"));
    fleet.decide(&policy("{}"));
    assert_eq!(fleet.waits_for(), Some(("b", 8_000)));
}

#[test]
fn tokens_that_the_engines_fetch_need_not_be_computed() {
    let policy = policy("{}");
    let mut fleet = fleet(["a", "b"], 20_000.0);
    fleet.holds("a", 18_000.0).holds("b", 0.0);
    busy(&mut fleet, "a", 9_000.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("a", 2_000)), "b would compute all of it");
    // Answers of one worker show the fetches of all.
    fleet.set("a", "cost.fetched-share", 1.0);
    assert_eq!(fleet.route(&policy), Some("b"));
    busy(&mut fleet, "b", 1_000.0);
    fleet.decide(&policy);
    // A fetched token costs 0.04 computed ones.
    assert_eq!(fleet.waits_for(), Some(("b", 2_720)));
}

#[test]
fn a_worker_that_makes_the_request_late_is_chosen_only_if_all_do() {
    let policy = policy("{}");
    let mut fleet = fleet(["a", "b"], 100_000.0);
    fleet.holds("a", 60_000.0);
    busy(&mut fleet, "a", 50_000.0);
    busy(&mut fleet, "b", 2_000.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("a", 40_000)), "9 s of 30");
    fleet.request("request.waited-ms", 21_500.0);
    fleet.set("b", "cost.prefill-ms", 7_000.0);
    fleet.decide(&policy);
    assert_eq!(
        fleet.waits_for(),
        Some(("b", 100_000)),
        "7.2 s are left of 8.5, but 9 are not"
    );
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
    // At 0.1 ms a token the prefill takes 10 s after 0.5 s of queue: 0.5 s of slack is left of 30 s.
    let urgent = held(100_000.0, 19_000.0);
    let more_urgent = held(100_000.0, 19_400.0);
    let late = held(100_000.0, 20_500.0);
    assert!(more_urgent < urgent && urgent < short && short < long && long < late);
}

#[test]
fn a_held_request_is_re_evaluated_when_it_becomes_urgent() {
    let mut fleet = fleet(["a"], 100_000.0);
    busy(&mut fleet, "a", 5_000.0);
    fleet.set("a", "cost.token-ms", 0.2);
    // Of 30 s, 20 s of its own work, 1 s of queue and the guard of 1 s leave 8 s.
    let verdict = fleet.decide(&policy("{}"));
    assert!(
        matches!(
            verdict,
            Verdict::Queue {
                ask_again_ms: 8_000,
                ..
            }
        ),
        "{verdict:?}"
    );
}

#[test]
fn a_request_is_sent_at_once_where_the_pool_cannot_hold_it_or_a_worker_has_failed() {
    for (number, value) in [("request.hold-left-ms", f64::NAN), ("request.tried", 1.0)] {
        let mut fleet = fleet(["a"], 1_000.0);
        busy(&mut fleet, "a", 50_000.0);
        fleet.request(number, value);
        assert_eq!(fleet.route(&policy("{}")), Some("a"), "{number} = {value}");
    }
}

#[test]
fn a_request_keeps_its_place_until_its_time_in_the_queue_ends() {
    let mut fleet = fleet(["a"], 1_000.0);
    busy(&mut fleet, "a", 50_000.0);
    for left_ms in [1.0, 0.0] {
        fleet.request("request.hold-left-ms", left_ms);
        assert!(order(&fleet.decide(&policy("{}"))).is_finite(), "{left_ms} ms");
    }
}

/// Returns true if the policy refuses the request with 429 and a time to return after.
fn refuses(policy: &Configured<TtftQueue>, fleet: &mut Scenario) -> bool {
    matches!(
        fleet.decide(policy),
        Verdict::Reject {
            status: 429,
            retry_after_ms: 1_000..,
            ..
        }
    )
}

/// Builds a fleet of one worker that is measured at 0.1 ms a token.
fn measured(prompt: f64) -> Scenario {
    let mut fleet = fleet(["a"], prompt);
    fleet.set("a", "cost.token-ms", 0.1);
    fleet
}

#[test]
fn a_late_request_is_refused_unless_that_is_disabled() {
    let (default, keeping) = (policy("{}"), policy(r#"{"refuse-late": false}"#));
    let mut fleet = measured(100_000.0);
    busy(&mut fleet, "a", 199_000.0);
    assert!(!refuses(&default, &mut fleet), "10 s after 19.9 s");
    busy(&mut fleet, "a", 201_000.0);
    assert!(refuses(&default, &mut fleet));
    assert!(
        order(&fleet.decide(&keeping)) > 1e11,
        "it keeps its place, after all others"
    );
    fleet.set("a", "cost.token-ms", f64::NAN);
    assert!(!refuses(&default, &mut fleet), "a guess refuses nothing");
    fleet.set("a", "cost.token-ms", 0.1).request("request.tried", 1.0);
    assert!(
        !refuses(&default, &mut fleet),
        "a tried request has caused work already"
    );
}

#[test]
fn the_target_of_the_route_replaces_the_one_of_the_policy() {
    let policy = policy("{}");
    let mut fleet = fleet(["a"], 10_000.0);
    busy(&mut fleet, "a", 100_000.0);
    fleet.set("a", "cost.token-ms", 0.1);
    assert!(!refuses(&policy, &mut fleet), "11 s of 30 s");
    fleet.request("request.ttft-target-ms", 5_000.0);
    assert!(refuses(&policy, &mut fleet), "11 s of 5 s");
    fleet.request("request.ttft-target-ms", 12_000.0);
    assert!(!refuses(&policy, &mut fleet), "11 s of 12 s");
}

#[test]
fn a_request_is_refused_early_if_shorter_ones_take_its_time() {
    let policy = policy("{}");
    let mut fleet = measured(100_000.0);
    busy(&mut fleet, "a", 50_000.0);
    // 5 s of queue and 10 s of its own leave 15 s of 30 for shorter requests: 10 s of them, and half as much again that
    // arrives meanwhile.
    for _ in 0..9 {
        fleet.hold("a", 10_000);
    }
    assert!(!refuses(&policy, &mut fleet));
    for _ in 0..2 {
        fleet.hold("a", 10_000);
    }
    assert!(refuses(&policy, &mut fleet));
}

#[test]
fn a_prompt_that_takes_too_long_by_itself_is_served_if_there_is_room() {
    let policy = policy("{}");
    let mut fleet = measured(320_000.0);
    assert_eq!(fleet.route(&policy), Some("a"));
    busy(&mut fleet, "a", 70_000.0);
    assert!(
        !refuses(&policy, &mut fleet),
        "32 s after 7 s: within 1.25 times its own time"
    );
    busy(&mut fleet, "a", 90_000.0);
    assert!(refuses(&policy, &mut fleet));
}

#[test]
fn a_request_waits_for_a_worker_with_fast_answers_and_is_refused_when_late() {
    let policy = policy(r#"{"token-within-ms": 100}"#);
    let mut fleet = measured(10_000.0);
    fleet.set("a", "cost.tbt-ms", 94.0);
    assert_eq!(fleet.route(&policy), Some("a"));
    fleet.set("a", "cost.tbt-ms", 95.0);
    fleet.decide(&policy);
    assert_eq!(fleet.waits_for(), Some(("a", 10_000)), "answers grow");
    fleet.request("request.waited-ms", 29_500.0);
    assert!(refuses(&policy, &mut fleet));
    fleet
        .request("request.waited-ms", 0.0)
        .request("request.hold-left-ms", f64::NAN);
    assert!(refuses(&policy, &mut fleet), "the pool holds nothing");
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
fn former_parameters_are_unknown() {
    let former = Configured::<TtftQueue>::new(r#"{"ahead-tokens": 0}"#).err();
    assert!(former.is_some_and(|error| error.starts_with("unknown parameter `ahead-tokens`")));
}
