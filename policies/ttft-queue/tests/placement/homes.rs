//! Homes of sessions and of prompts, which are assumed to hold a part of a prompt while no cache is known.

use conductor_policy_sdk::testing::Scenario;

use super::{busy, policy};

#[test]
fn without_an_index_a_session_stays_on_its_worker() {
    let policy = policy("{}");
    let mut fleet = Scenario::new(["a", "b", "c"]);
    fleet.request("request.prompt-tokens", 10_000.0).session(Some(7));
    let home = fleet.route(&policy).unwrap_or_default().to_owned();
    busy(&mut fleet, &home, 5_000.0);
    assert_eq!(fleet.route(&policy), Some(&*home));
}

#[test]
fn without_an_index_prompts_of_one_beginning_stay_on_their_worker() {
    let policy = policy("{}");
    let mut fleet = Scenario::new(["a", "b", "c"]);
    fleet
        .request("request.prompt-tokens", 10_000.0)
        .request("prefix.key-1024", 12_345.0);
    let home = fleet.route(&policy).unwrap_or_default().to_owned();
    busy(&mut fleet, &home, 5_000.0);
    assert_eq!(fleet.route(&policy), Some(&*home));
}

#[test]
fn homes_follow_the_names_of_workers_and_not_their_order() {
    let policy = policy("{}");
    let home = |names: [&str; 3], session| {
        let mut fleet = Scenario::new(names);
        fleet.request("request.prompt-tokens", 10_000.0);
        match session % 2 {
            0 => fleet.session(Some(session)),
            _ => fleet.request("prefix.key-1024", session as f64),
        };
        fleet.route(&policy).unwrap_or_default().to_owned()
    };
    for session in 0..100 {
        assert_eq!(
            home(["a", "b", "c"], session),
            home(["c", "a", "b"], session),
            "{session}"
        );
    }
}
