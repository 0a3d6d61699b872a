//! Several routers before one cluster.

use routing::Tier;

use super::*;
use crate::engine::EngineLoad;
use crate::router::{CostSource, Knowledge, RouterBalance, Routers};

#[test]
fn each_router_knows_its_own_requests_and_the_reports_of_engines() {
    let columns = ["load.requests", "engine.running", "prefix.any-tokens"];
    let policies = [0, 1].map(|_| Scripted::row(&[], &columns, 0));
    let spec = RouterSpec::default();
    let mut routers = Routers::new(&workers(1), BLOCK, policies.each_ref().map(one), &spec);
    routers.cache_event(0, 0, &stored(&[1], Tier::Device));
    let load = EngineLoad {
        decoding: 5,
        ..EngineLoad::default()
    };
    routers.record_engine_load(0, 0, &load);
    let prompt = request(512, &[1]);
    for number in 0..3 {
        routers.place(1_000, arrives(number, &prompt), 0);
    }
    assert_eq!(policies[0].numbers(), [1.0, 5.0, 512.0]);
    assert_eq!(policies[1].numbers(), [0.0, 5.0, 512.0]);
    routers.first_token(2_000, 1, 0);
    routers.finished(3_000, 1, 1);
    let in_flight = routers.routers.iter().map(|router| router.load(0).requests);
    assert_eq!(in_flight.collect::<Vec<_>>(), [2, 0]);
    assert_eq!(routers.counts().dispatched, 3);
}

#[test]
fn the_same_seed_places_the_same() {
    let run = |seed| -> Vec<Placement> {
        let policies = [0, 1].map(|_| {
            // Prefers the worker that is done first, as far as the numbers show.
            Scripted::new(
                &[],
                &["load.prefill-tokens", "cost.token-ms", "cost.prefill-ms"],
                |input| {
                    let done = input.numbers.chunks_exact(3).map(|row| row[0] * row[1] + row[2]);
                    let first = done.enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
                    route(first.unwrap().0 as u32)
                },
            )
        });
        let spec = RouterSpec {
            seed,
            costs: CostSource::Wrong { sigma: 0.7 },
            knowledge: Knowledge::Events {
                lag_us: 5_000,
                loss: 0.2,
            },
            ..RouterSpec::default()
        };
        let mut routers = Routers::new(&workers(4), BLOCK, policies.each_ref().map(one), &spec);
        let place = |number: usize| {
            let now_us = 10_000 * number as u64;
            let session = number as u64 % 9;
            let prompt = request(1_024, &[session, 100 + session]);
            let placement = routers.place(now_us, arrives(number, &prompt), 0);
            routers.cache_event(now_us, sent(&placement).0, &stored(&prompt.blocks, Tier::Device));
            placement
        };
        (0..300).map(place).collect()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn each_router_counts_its_own_requests_and_draws_its_own_lots() {
    let facts = |seed| -> [Vec<RequestFacts>; 2] {
        let policies = [0, 1].map(|_| Scripted::row(&[], &[], 0));
        let spec = RouterSpec {
            seed,
            ..RouterSpec::default()
        };
        let mut routers = Routers::new(&workers(4), BLOCK, policies.each_ref().map(one), &spec);
        for number in 0..6 {
            routers.place(1_000, arrives(number, &request(512, &[1])), 0);
        }
        policies.map(|policy| {
            policy
                .seen
                .lock()
                .unwrap()
                .iter()
                .map(|seen| seen.facts)
                .collect()
        })
    };
    let [one, other] = facts(1);
    let numbers = |facts: &[RequestFacts]| -> Vec<u64> { facts.iter().map(|facts| facts.seq).collect() };
    assert_eq!((numbers(&one), numbers(&other)), (vec![1, 2, 3], vec![1, 2, 3]));
    let seeds = |facts: &[RequestFacts]| -> Vec<u64> { facts.iter().map(RequestFacts::seed).collect() };
    assert_ne!(seeds(&one), seeds(&other));
    assert_eq!([one, other], facts(1));
    assert_ne!(seeds(&facts(1)[1]), seeds(&facts(2)[1]));
}

#[test]
fn requests_of_a_session_go_to_one_router_if_the_balancer_hashes_it() {
    let policies = [0, 1, 2].map(|_| Scripted::row(&[], &[], 0));
    let spec = RouterSpec {
        balance: RouterBalance::Session,
        ..RouterSpec::default()
    };
    let mut routers = Routers::new(&workers(1), BLOCK, policies.each_ref().map(one), &spec);
    let session = |number: usize| (!number.is_multiple_of(4)).then_some(number as u64 % 4);
    let requests = (0..24).map(|number| Request {
        session: session(number),
        ..request(512, &[1])
    });
    routers.assign(&requests.collect::<Vec<_>>(), &spec);
    for number in 0..24 {
        let expected = match session(number) {
            Some(_) => routers.number_of(number % 4),
            None => number % 3,
        };
        assert_eq!(routers.number_of(number), expected, "request {number}");
    }
    let used: std::collections::BTreeSet<usize> = (1..4).map(|number| routers.number_of(number)).collect();
    assert!(used.len() > 1, "sessions are spread");
}
