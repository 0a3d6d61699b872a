//! Several routers that share their loads.

use routing::Phase;

use super::*;
use crate::router::{BusCut, Knowledge, Routers, SharingSpec};

/// Returns two routers on a bus. The column that their policies read is `load.requests` of the first worker.
fn routers(sharing: SharingSpec) -> (Routers, [Arc<Scripted>; 2]) {
    let policies = [0, 1].map(|_| Scripted::row(&[], &["load.requests"], 0));
    let spec = RouterSpec {
        sharing: Some(sharing),
        ..RouterSpec::default()
    };
    let routers = Routers::new(&workers(1), BLOCK, policies.each_ref().map(one), &spec);
    (routers, policies)
}

fn every_5_ms() -> SharingSpec {
    SharingSpec {
        every_us: 5_000,
        lag_us: 1_000,
        loss: 0.0,
        queue: true,
        costs: true,
        expected: false,
        cuts: Vec::new(),
    }
}

/// Does the exchanges up to that time.
fn exchange(routers: &mut Routers, until_us: u64) {
    while routers.next_exchange_at().is_some_and(|at| at <= until_us) {
        routers.exchange();
    }
}

#[test]
fn requests_of_another_router_are_known_after_a_period_and_the_lag() {
    let (mut routers, policies) = routers(every_5_ms());
    let prompt = request(512, &[1]);
    exchange(&mut routers, 1_000);
    routers.place(1_000, arrives(0, &prompt), 0);
    exchange(&mut routers, 3_000);
    routers.place(3_000, arrives(1, &prompt), 0);
    assert_eq!(policies[1].numbers(), [0.0]);
    exchange(&mut routers, 12_000);
    routers.place(12_000, arrives(3, &prompt), 0);
    assert_eq!(policies[1].numbers(), [2.0], "one of each router");
    routers.finished(13_000, 0, 1);
    exchange(&mut routers, 24_000);
    routers.place(24_000, arrives(5, &prompt), 0);
    assert_eq!(policies[1].numbers(), [2.0], "the two own ones");
}

#[test]
fn a_lost_message_is_healed_within_a_second() {
    let (mut routers, policies) = routers(SharingSpec {
        cuts: vec![BusCut {
            router: Some(0),
            from_us: 0,
            until_us: 100_000,
        }],
        ..every_5_ms()
    });
    let prompt = request(512, &[1]);
    routers.place(1_000, arrives(0, &prompt), 0);
    exchange(&mut routers, 90_000);
    routers.place(90_000, arrives(1, &prompt), 0);
    assert_eq!(policies[1].numbers(), [0.0], "cut off");
    exchange(&mut routers, 1_200_000);
    routers.place(1_200_000, arrives(3, &prompt), 0);
    assert_eq!(policies[1].numbers(), [2.0]);
}

#[test]
fn a_dead_router_counts_no_more_and_its_requests_go_to_the_next() {
    let (mut routers, policies) = routers(every_5_ms());
    let prompt = request(512, &[1]);
    routers.place(1_000, arrives(0, &prompt), 0);
    exchange(&mut routers, 90_000);
    routers.die(90_000, 0, &[0]);
    routers.place(90_000, arrives(2, &prompt), 0);
    assert_eq!(policies[1].numbers(), [1.0], "it said no goodbye");
    // No engine reports its load, so nothing confirms the dead router's request.
    exchange(&mut routers, 3_000_000);
    routers.place(3_000_000, arrives(4, &prompt), 0);
    assert_eq!(policies[1].numbers(), [1.0], "the own one");
}

#[test]
fn a_router_that_stays_away_counts_no_more() {
    let (mut routers, policies) = routers(SharingSpec {
        cuts: vec![BusCut {
            router: None,
            from_us: 100_000,
            until_us: 60_000_000,
        }],
        ..every_5_ms()
    });
    let prompt = request(512, &[1]);
    routers.place(1_000, arrives(0, &prompt), 0);
    exchange(&mut routers, 90_000);
    routers.place(90_000, arrives(1, &prompt), 0);
    assert_eq!(policies[1].numbers(), [1.0]);
    // No engine reports its load, so nothing confirms the silent router's request.
    exchange(&mut routers, 3_000_000);
    routers.place(3_000_000, arrives(3, &prompt), 0);
    assert_eq!(policies[1].numbers(), [1.0], "the own one");
}

/// Returns two routers that expect each other's prompts, before a prefill worker and two decode workers. Their policies
/// send to the first pair, and an answer by itself to the last worker.
fn expecting_routers() -> (Routers, [Arc<Scripted>; 2]) {
    let policies = [0, 1].map(|_| {
        Scripted::new(&[], &["worker.role", "prefix.any-tokens"], |input| {
            let is_pair = input.request.phase == Phase::Mixed;
            Verdict::Route(Choice {
                row: if is_pair { 1 } else { input.ids.len() as u32 - 1 },
                prefill: is_pair.then_some(0),
                score: f64::NAN,
            })
        })
    });
    let spec = RouterSpec {
        sharing: Some(SharingSpec {
            expected: true,
            ..every_5_ms()
        }),
        knowledge: Knowledge::Assumed {
            lifetime_us: 1_000_000,
        },
        ..RouterSpec::default()
    };
    let cluster = roles(&[Role::Prefill, Role::Decode, Role::Decode]);
    let routers = Routers::new(&cluster, BLOCK, policies.each_ref().map(one), &spec);
    (routers, policies)
}

/// Returns the matched tokens of each candidate in the last call, by its id.
fn matched(policy: &Scripted) -> Vec<(u32, f64)> {
    let seen = policy.last();
    let tokens = seen.numbers.chunks(2).map(|row| row[1]);
    seen.ids.iter().copied().zip(tokens).collect()
}

#[test]
fn a_prompt_of_another_router_is_expected_where_and_when_its_own_router_expects_it() {
    let (mut routers, policies) = expecting_routers();
    let prompt = request(1_024, &[1, 2]);
    routers.place(0, arrives(0, &prompt), 0);
    routers.place(1, arrives(1, &prompt), 0);
    assert_eq!(
        matched(&policies[1]),
        [(0, 1_024.0), (1, 0.0), (2, 0.0)],
        "the prefill worker is computing it"
    );
    routers.first_token(2, 0, 0);
    routers.place(3, arrives(3, &prompt), 0);
    assert_eq!(matched(&policies[1]), [(0, 1_024.0), (1, 1_024.0), (2, 0.0)]);
}

#[test]
fn an_answer_that_is_placed_again_is_expected_by_the_other_routers_too() {
    let (mut routers, policies) = expecting_routers();
    let prompt = request(1_024, &[1, 2]);
    routers.place(0, arrives(0, &prompt), 0);
    routers.first_token(1, 0, 0);
    routers.lost(2, 0, 1);
    let at_last = || matched(&policies[1]).into_iter().find(|(id, _)| *id == 2);
    routers.place(3, arrives(1, &prompt), 0);
    assert_eq!(at_last(), Some((2, 0.0)));
    routers.place_answer(4, arrives(0, &prompt), 1);
    routers.place(5, arrives(3, &prompt), 0);
    assert_eq!(at_last(), Some((2, 1_024.0)));
}
