//! Single placements: when a request is split, which pair it goes to, and when one worker serves all of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use conductor_policy_sdk::testing::Scenario;
use conductor_policy_sdk::{Configured, Phase, Role, Verdict};
use pd_pairing::PdPairing;

fn pd_pairing() -> Configured<PdPairing> {
    Configured::new("{}").unwrap()
}

/// Builds a fleet for a request of `prompt` tokens without any cached prefix; roles follow from the first
/// letters of names.
fn cold(names: &[&str], prompt: f64) -> Scenario {
    let mut fleet = Scenario::new(names.iter().copied());
    fleet.request("request.prompt-tokens", prompt);
    for name in names {
        let role = match name.as_bytes()[0] {
            b'p' => Role::Prefill,
            b'd' => Role::Decode,
            _ => Role::Mixed,
        };
        fleet.role(name, role).holds(name, 0.0);
    }
    fleet
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

#[test]
fn splits_a_long_uncached_prompt() {
    let mut fleet = cold(&["p1", "d1"], 8_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
    fleet.holds("d1", 4_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
}

#[test]
fn a_decode_worker_computes_a_short_uncached_remainder_itself() {
    let mut fleet = cold(&["p1", "p2", "d1", "d2"], 8_000.0);
    fleet.holds("d2", 7_000.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d2"));
}

#[test]
fn a_short_prompt_with_little_cached_is_split() {
    let mut fleet = cold(&["p1", "d1"], 1_000.0);
    fleet.holds("d1", 200.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
    fleet.holds("d1", 400.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d1"));
    let any_share = Configured::new(r#"{"alone-below-share": 2}"#).unwrap();
    fleet.holds("d1", 0.0);
    assert_eq!(fleet.route::<PdPairing>(&any_share), Some("d1"));
}

#[test]
fn a_busy_decode_worker_computes_no_prompt() {
    let mut fleet = cold(&["p1", "d1"], 8_000.0);
    fleet.holds("d1", 7_900.0);
    decoding(&mut fleet, "d1", 16.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d1"));
    decoding(&mut fleet, "d1", 1.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
}

#[test]
fn a_decode_worker_serves_alone_only_if_that_costs_less() {
    let mut fleet = cold(&["p1", "d1"], 8_000.0);
    fleet.holds("p1", 7_900.0).holds("d1", 6_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
    waiting(&mut fleet, "p1", 2.0, 3_000.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d1"));
}

#[test]
fn no_decode_worker_serves_alone_if_disabled() {
    let policy = Configured::<PdPairing>::new(r#"{"alone-below-tokens": 0}"#).unwrap();
    let mut fleet = cold(&["p1", "d1"], 8_000.0);
    fleet.holds("d1", 8_000.0);
    assert_eq!(fleet.pair(&policy), Some(("p1", "d1")));
}

#[test]
fn no_decode_worker_serves_alone_if_the_pool_forbids_it() {
    let mut fleet = cold(&["p1", "d1"], 8_000.0);
    fleet.holds("d1", 8_000.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d1"));
    fleet.request("request.decode-alone", 0.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
}

#[test]
fn a_decode_worker_serves_alone_if_there_is_no_prefill_worker() {
    let mut fleet = cold(&["p1", "d1"], 50_000.0);
    assert_eq!(fleet.offer(&["d1"]).route(&pd_pairing()), Some("d1"));
    assert_eq!(fleet.offer(&["p1"]).decide(&pd_pairing()), Verdict::Pass);
}

#[test]
fn avoids_the_queued_prefill_worker_unless_its_cache_is_worth_the_wait() {
    let mut fleet = cold(&["p1", "p2", "d1"], 8_000.0);
    waiting(&mut fleet, "p1", 1.0, 2_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p2", "d1")));
    fleet.holds("p1", 7_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
}

#[test]
fn the_decode_worker_has_fewer_requests_or_less_to_fetch() {
    let mut fleet = cold(&["p1", "d1", "d2"], 8_000.0);
    decoding(&mut fleet, "d1", 5.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d2")));
    fleet.holds("d1", 5_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
    waiting(&mut fleet, "d1", 2.0, 0.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d2")));
}

#[test]
fn prefers_a_near_pair_until_its_queue_is_worth_the_way() {
    let policy = Configured::<PdPairing>::new(r#"{"near-label": "rack"}"#).unwrap();
    let mut fleet = cold(&["p1", "p2", "d1", "d2"], 10_000.0);
    for (worker, rack) in [("p1", 1.0), ("p2", 2.0), ("d2", 2.0)] {
        fleet.set(worker, "label.rack", rack);
    }
    for _ in 0..50 {
        assert_eq!(fleet.pair(&policy), Some(("p2", "d2")));
    }
    // The near transfer costs 400 tokens here and the far one 1,600.
    waiting(&mut fleet, "p2", 0.0, 1_100.0);
    assert_eq!(fleet.pair(&policy), Some(("p2", "d2")));
    waiting(&mut fleet, "p2", 0.0, 200.0);
    assert_eq!(fleet.pair(&policy).unwrap().0, "p1");
    assert_eq!(fleet.pair(&pd_pairing()).unwrap().0, "p1");
}

#[test]
fn the_pair_with_the_least_cost_is_always_chosen() {
    let params =
        r#"{"near-label": "rack", "backlog-price": 0, "alone-below-tokens": 0, "decode-tokens": 10}"#;
    let policy = Configured::<PdPairing>::new(params).unwrap();
    let names: Vec<String> = (0..12)
        .map(|index| format!("{}{index}", ["p", "d"][index % 2]))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for round in 1_u32..200 {
        let mut draw = conductor_policy_sdk::mix(u64::from(round), 0);
        let mut below = |end: u32| {
            draw = conductor_policy_sdk::mix(draw, 1);
            f64::from((draw % u64::from(end)) as u32)
        };
        let mut fleet = cold(&names, 20_000.0);
        let mut drawn = BTreeMap::new();
        for name in &names {
            let (queued, requests, held, rack) = (below(5_000), below(40), below(20_000), below(4));
            fleet.holds(name, held);
            fleet.set(name, "load.prefill-tokens", queued);
            fleet.set(name, "load.requests", requests);
            fleet.set(name, "label.rack", if rack == 3.0 { f64::NAN } else { rack });
            drawn.insert(*name, (queued, requests, held, rack));
        }
        let cost = |prefill: &str, decode: &str| {
            let ((p_queued, _, p_held, p_rack), (d_queued, requests, d_held, d_rack)) =
                (drawn[prefill], drawn[decode]);
            let factor = if p_rack == d_rack && p_rack != 3.0 {
                1.0
            } else {
                4.0
            };
            p_queued + 128.0 + 20_000.0 - p_held
                + 0.04 * (20_000.0 - d_held) * factor
                + d_queued
                + 10.0 * requests
        };
        let pairs = names.iter().flat_map(|p| names.iter().map(move |d| (*p, *d)));
        let pairs = pairs.filter(|(p, d)| p.starts_with('p') && d.starts_with('d'));
        let least = pairs.map(|(p, d)| cost(p, d)).fold(f64::INFINITY, f64::min);
        let Verdict::Pair { row, prefill, score } = fleet.decide(&policy) else {
            panic!("round {round}: no pair")
        };
        assert!(
            (cost(names[prefill], names[row]) - least).abs() < 1e-6,
            "round {round}"
        );
        assert!((score + least).abs() < 1e-6, "round {round}");
    }
}

#[test]
fn an_idle_mixed_worker_wins_if_both_pools_are_loaded() {
    let mut fleet = cold(&["p1", "d1", "m1"], 8_000.0);
    waiting(&mut fleet, "m1", 1.0, 8_000.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
    waiting(&mut fleet, "m1", -1.0, -8_000.0);
    waiting(&mut fleet, "p1", 1.0, 2_000.0);
    decoding(&mut fleet, "d1", 20.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("m1"));
}

#[test]
fn equal_pairs_are_used_evenly_and_a_session_keeps_its_own() {
    let mut fleet = cold(&["p1", "p2", "p3", "d1", "d2"], 8_000.0);
    let policy = pd_pairing();
    let mut counts = BTreeMap::new();
    for _ in 0..6_000 {
        let (prefill, decode) = fleet.pair(&policy).unwrap();
        *counts.entry((prefill.to_owned(), decode.to_owned())).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 6);
    assert!(
        counts.values().all(|count| (800..1_200).contains(count)),
        "{counts:?}"
    );
    fleet.session(Some(7));
    let (prefill, decode) = fleet.pair(&policy).unwrap();
    let (prefill, decode) = (prefill.to_owned(), decode.to_owned());
    assert_eq!(fleet.pair(&policy), Some((&*prefill, &*decode)));
}

#[test]
fn without_tokens_and_feeds_the_body_length_estimates_the_prompt() {
    let mut fleet = Scenario::new(["p1", "d1", "m1"]);
    fleet.role("p1", Role::Prefill).role("d1", Role::Decode);
    fleet.request("request.body-bytes", 40_000.0);
    // A tenth of 10,000 tokens queued at the mixed worker is more than the transfer costs.
    fleet.set("m1", "load.prefill-tokens", 500.0);
    assert_eq!(fleet.pair(&pd_pairing()), Some(("p1", "d1")));
    fleet.set("m1", "load.prefill-tokens", 300.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("m1"));
}

#[test]
fn a_single_leg_is_placed_by_the_same_terms() {
    let mut fleet = cold(&["p1", "p2", "m1"], 8_000.0);
    fleet.phase(Phase::Prefill).holds("p2", 4_000.0);
    waiting(&mut fleet, "p1", 1.0, 100.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("p2"));
    let mut fleet = cold(&["d1", "d2"], 8_000.0);
    fleet.phase(Phase::Decode).holds("d1", 8_000.0);
    decoding(&mut fleet, "d1", 5.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d1"));
    decoding(&mut fleet, "d1", 10.0);
    assert_eq!(fleet.route(&pd_pairing()), Some("d2"));
}

#[test]
fn mistakes_in_the_parameters_are_all_reported() {
    let params = r#"{"far-factor": 0.5, "near-label": 1, "slo": 1}"#;
    let error = Configured::<PdPairing>::new(params).unwrap_err();
    assert_eq!(error.lines().count(), 4, "{error}");
    assert!(error.contains("alone-below-share = 0.7"), "{error}");
}

#[test]
fn measured_speeds_replace_weights_once_all_prefill_workers_have_one() {
    let policy = Configured::<PdPairing>::new(r#"{"measured-speed": true}"#).unwrap();
    let mut fleet = cold(&["p1", "p2", "d1"], 8_000.0);
    // The configured weights and the measured speeds are opposites.
    fleet.set("p1", "worker.weight", 4.0);
    fleet.set("p2", "cost.token-ms", 0.05);
    assert_eq!(fleet.pair(&policy), Some(("p1", "d1")));
    fleet.set("p1", "cost.token-ms", 0.2);
    assert_eq!(
        fleet.pair(&policy),
        Some(("p2", "d1")),
        "the decode worker needs no measurement"
    );
}

#[test]
fn a_transfer_is_priced_in_measured_time() {
    let params =
        r#"{"measured-speed": true, "near-label": "rack", "far-factor": 10, "alone-below-tokens": 0}"#;
    let policy = Configured::<PdPairing>::new(params).unwrap();
    let mut fleet = cold(&["p-near", "p-far", "d1"], 8_000.0);
    for (worker, rack) in [("p-near", 1.0), ("p-far", 2.0), ("d1", 1.0)] {
        fleet.set(worker, "label.rack", rack);
    }
    // At any token time, a speed-up of a tenth does not pay for the far transfer, and a factor of two does.
    for token_ms in [0.01, 1.0, 100.0] {
        fleet.set("p-near", "cost.token-ms", token_ms);
        fleet.set("p-far", "cost.token-ms", 0.9 * token_ms);
        assert_eq!(fleet.pair(&policy), Some(("p-near", "d1")), "{token_ms}");
        fleet.set("p-far", "cost.token-ms", 0.5 * token_ms);
        assert_eq!(fleet.pair(&policy), Some(("p-far", "d1")), "{token_ms}");
    }
}
