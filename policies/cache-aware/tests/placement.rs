//! Single placements: when a cache match decides, and when load does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::VecDeque;

use cache_aware::CacheAware;
use conductor_policy_sdk::Configured;
use conductor_policy_sdk::testing::Scenario;

fn cache_aware() -> Configured<CacheAware> {
    Configured::new("{}").unwrap()
}

/// Adds requests before their first token, with `tokens` to compute in all.
fn waiting(fleet: &mut Scenario, worker: &str, requests: f64, tokens: f64) {
    fleet
        .add(worker, "load.requests", requests)
        .add(worker, "load.prefill-tokens", tokens);
}

/// Adds requests past their first token.
fn decoding(fleet: &mut Scenario, worker: &str, requests: f64) {
    fleet
        .add(worker, "load.requests", requests)
        .add(worker, "load.decoding", requests);
}

/// Builds a fleet for a request of `prompt` tokens without any cached prefix.
fn cold(names: &[&str], prompt: f64) -> Scenario {
    let mut fleet = Scenario::new(names.iter().copied());
    fleet.request("request.prompt-tokens", prompt);
    for name in names {
        fleet.holds(name, 0.0);
    }
    fleet
}

#[test]
fn follows_the_cache_under_moderate_load() {
    let mut fleet = cold(&["a", "b", "c"], 3_200.0);
    fleet.holds("b", 3_000.0);
    waiting(&mut fleet, "b", 1.0, 600.0);
    decoding(&mut fleet, "b", 8.0);
    assert_eq!(fleet.route(&cache_aware()), Some("b"));
}

#[test]
fn an_overloaded_holder_of_the_prefix_is_avoided() {
    let mut fleet = cold(&["a", "b", "c"], 3_200.0);
    fleet.holds("b", 3_000.0);
    waiting(&mut fleet, "b", 10.0, 20_000.0);
    waiting(&mut fleet, "c", 1.0, 500.0);
    assert_eq!(fleet.route(&cache_aware()), Some("a"));
}

#[test]
fn a_long_cold_prompt_goes_where_few_wait_behind_it() {
    let mut fleet = cold(&["many-short", "one-long"], 8_000.0);
    waiting(&mut fleet, "many-short", 6.0, 3_000.0);
    waiting(&mut fleet, "one-long", 1.0, 6_000.0);
    assert_eq!(fleet.route(&cache_aware()), Some("one-long"));
    fleet.request("request.prompt-tokens", 100.0);
    assert_eq!(fleet.route(&cache_aware()), Some("many-short"));
}

#[test]
fn a_faster_worker_is_worth_its_weight() {
    let mut fleet = cold(&["slow", "fast"], 1_000.0);
    fleet.set("fast", "worker.weight", 2.0);
    waiting(&mut fleet, "fast", 1.0, 200.0);
    assert_eq!(fleet.route(&cache_aware()), Some("slow"));
    fleet.set("fast", "worker.weight", 4.0);
    assert_eq!(fleet.route(&cache_aware()), Some("fast"));
}

#[test]
fn a_slower_tier_is_worth_less() {
    let mut fleet = cold(&["device", "host", "disk"], 2_000.0);
    fleet.holds("device", 1_000.0);
    fleet
        .set("host", "prefix.host-tokens", 1_200.0)
        .set("host", "prefix.any-tokens", 1_200.0);
    fleet.set("disk", "prefix.any-tokens", 1_900.0);
    assert_eq!(fleet.route(&cache_aware()), Some("device"));
    fleet
        .set("host", "prefix.host-tokens", 1_600.0)
        .set("host", "prefix.any-tokens", 1_600.0);
    assert_eq!(fleet.route(&cache_aware()), Some("host"));
}

#[test]
fn an_unknown_match_is_no_match() {
    let mut fleet = Scenario::new(["unknown", "known"]);
    fleet
        .request("request.prompt-tokens", 1_000.0)
        .holds("known", 64.0);
    assert_eq!(fleet.route(&cache_aware()), Some("known"));
}

#[test]
fn a_session_with_unknown_tokens_stays_home_until_home_is_overloaded() {
    let policy = cache_aware();
    for session in 0..100 {
        let mut fleet = Scenario::new(["a", "b", "c", "d"]);
        fleet
            .session(Some(session))
            .request("request.body-bytes", 16_000.0);
        let home = fleet.route(&policy).unwrap().to_owned();
        waiting(&mut fleet, &home, 1.0, 500.0);
        decoding(&mut fleet, &home, 4.0);
        assert_eq!(fleet.route(&policy), Some(&*home));
        waiting(&mut fleet, &home, 5.0, 20_000.0);
        assert_ne!(fleet.route(&policy), Some(&*home));
    }
}

#[test]
fn a_worker_that_leaves_moves_no_session_but_its_own() {
    let policy = cache_aware();
    for session in 0..100 {
        let mut fleet = Scenario::new(["a", "b", "c"]);
        fleet
            .session(Some(session))
            .request("request.body-bytes", 4_000.0);
        let home = fleet.route(&policy).unwrap().to_owned();
        let after = fleet.offer(&["a", "c"]).route(&policy).unwrap();
        assert!(after == home || home == "b");
    }
}

#[test]
fn homes_and_ties_follow_the_names_of_workers_and_not_their_order() {
    let policy = cache_aware();
    for session in 0..100 {
        let homes = [["a", "b", "c"], ["c", "a", "b"]].map(|names| {
            let mut unknown = Scenario::new(names);
            unknown
                .session(Some(session))
                .request("request.body-bytes", 16_000.0);
            let mut tie = cold(&names, 1_000.0);
            tie.session(Some(session));
            [unknown, tie].map(|mut fleet| fleet.route(&policy).unwrap().to_owned())
        });
        assert_eq!(homes[0], homes[1]);
    }
}

/// Returns the busiest worker's share over the mean, for 200 requests over 8 workers that all hold the same
/// 2,000 tokens; `in_flight` of them wait at a time.
fn imbalance(in_flight: usize) -> f64 {
    let policy = cache_aware();
    let names: Vec<String> = (0..8).map(|index| format!("w{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fleet = cold(&names, 0.0);
    for name in &names {
        fleet.holds(name, 2_000.0);
    }
    let mut counts = vec![0_u32; names.len()];
    let mut sent = VecDeque::new();
    for request in 0..200 {
        let suffix = f64::from(50 + request * 37 % 600);
        fleet.request("request.prompt-tokens", 2_000.0 + suffix);
        let worker = fleet.route(&policy).unwrap().to_owned();
        counts[names.iter().position(|name| *name == worker).unwrap()] += 1;
        waiting(&mut fleet, &worker, 1.0, suffix);
        sent.push_back((worker, suffix));
        if sent.len() > in_flight {
            let (worker, suffix) = sent.pop_front().unwrap();
            waiting(&mut fleet, &worker, -1.0, -suffix);
        }
    }
    f64::from(*counts.iter().max().unwrap()) / (200.0 / names.len() as f64)
}

#[test]
fn a_prefix_shared_by_all_does_not_overload_one_worker() {
    for in_flight in [8, 32, 200] {
        let imbalance = imbalance(in_flight);
        assert!(imbalance <= 1.3, "{in_flight} in flight: {imbalance}");
    }
}

#[test]
fn mistakes_in_the_parameters_are_all_reported() {
    let params = r#"{"backlog-price": -1, "host-worth": 2, "lambda": 1}"#;
    let error = Configured::<CacheAware>::new(params).unwrap_err();
    assert_eq!(error.lines().count(), 4, "{error}");
    assert!(error.ends_with("session-share = 0.75"), "{error}");
}

#[test]
fn measured_speeds_replace_weights_once_every_candidate_has_one() {
    let policy = Configured::<CacheAware>::new(r#"{"measured-speed": true}"#).unwrap();
    let mut fleet = cold(&["a", "b"], 4_000.0);
    // The configured weights and the measured speeds are opposites.
    fleet.set("a", "worker.weight", 4.0);
    fleet.set("b", "cost.token-ms", 0.05);
    assert_eq!(fleet.route(&policy), Some("a"));
    fleet.set("a", "cost.token-ms", 0.2);
    assert_eq!(fleet.route(&policy), Some("b"));
    // A worker four times slower that holds nine tenths still answers first.
    fleet.holds("a", 3_600.0);
    assert_eq!(fleet.route(&policy), Some("a"));
}
