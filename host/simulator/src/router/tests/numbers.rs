//! Feature columns of a simulation.

use routing::{CANDIDATE_CATALOGUE, REQUEST_CATALOGUE, Tier};

use super::*;
use crate::engine::EngineLoad;
use crate::router::CostSource;

const LOADS: [&str; 6] = [
    "load.requests",
    "load.queued",
    "load.prefill-tokens",
    "load.decoding",
    "load.decoding-tokens",
    "load.prompt-tokens",
];

#[test]
fn every_number_of_the_catalogue_is_known_but_for_those_a_trace_cannot_have() {
    let request_names: Vec<&str> = REQUEST_CATALOGUE.iter().map(|(_, doc)| doc.name).collect();
    let candidate_names: Vec<&str> = CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc.name).collect();
    let policy = Scripted::row(&request_names, &candidate_names, 0);
    let spec = RouterSpec {
        costs: CostSource::Exact(Profile::default()),
        ..RouterSpec::default()
    };
    let mut router = router(&roles(&[Role::Mixed]), &policy, &spec);
    let load = EngineLoad {
        waiting: 2,
        computing: 1,
        decoding: 3,
        kv_tokens: 1_000,
    };
    router.record_engine_load(0, 0, &load);
    for number in 0..16 {
        let now_us = 1_000 * number as u64;
        router.place(now_us, arrives(number, &some_request()), 0);
        router.first_token(now_us + 500, number, 0);
        router.finished(now_us + 900, number, 9);
    }
    router.place(20_000, arrives(16, &some_request()), 0);
    let names = request_names.iter().chain(&candidate_names);
    let unknown: Vec<&str> = names
        .zip(policy.numbers())
        .filter(|(_, number)| number.is_nan())
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(
        unknown,
        [
            "request.max-tokens",
            "request.priority",
            "request.ttft-target-ms",
            // Shorter than a block of the trace.
            "prefix.key-64",
            "prefix.key-128",
            "prefix.key-256",
            "worker.dp-rank",
            // One worker alone has none to fetch from.
            "cost.fetched-share",
        ]
    );
}

#[test]
fn a_request_counts_where_it_is_from_dispatch_to_end() {
    let policy = Scripted::row(&[], &LOADS, 0);
    let mut router = router(&roles(&[Role::Mixed]), &policy, &RouterSpec::default());
    let prompt = request(1_000, &[1, 2]);
    let loads = |router: &mut Router, number| {
        router.place(900_000, arrives(number, &prompt), 0);
        router.left(900_000, number);
        policy.numbers()
    };
    router.place(100_000, arrives(0, &prompt), 0);
    assert_eq!(loads(&mut router, 1), [1.0, 1.0, 1_000.0, 0.0, 0.0, 1_000.0]);
    router.first_token(200_000, 0, 0);
    assert_eq!(loads(&mut router, 2), [1.0, 0.0, 0.0, 1.0, 1_000.0, 1_000.0]);
    assert_eq!(router.load(0).ttft_ewma_ms, 100.0);
    router.finished(300_000, 0, 50);
    assert_eq!(loads(&mut router, 3), [0.0; 6]);
}

#[test]
fn matched_tokens_are_not_counted_as_waiting() {
    let policy = Scripted::row(&[], &["load.prefill-tokens", "prefix.any-tokens"], 0);
    let mut router = router(&workers(1), &policy, &RouterSpec::default());
    router.cache_event(0, 0, &stored(&[1], Tier::Device));
    let placement = router.place(0, arrives(0, &request(1_000, &[1, 2])), 0);
    let Placement::Dispatch { matched, .. } = placement else {
        panic!("{placement:?}")
    };
    assert_eq!(matched, Some(BLOCK));
    assert_eq!(router.load(0).prefill_tokens, u64::from(1_000 - BLOCK));
}

#[test]
fn a_policy_that_does_not_query_the_index_has_its_prompts_booked_whole() {
    let policy = Scripted::row(&[], &["load.requests"], 0);
    let mut router = router(&workers(1), &policy, &RouterSpec::default());
    router.cache_event(0, 0, &stored(&[1, 2], Tier::Device));
    router.place(0, arrives(0, &request(1_000, &[1, 2])), 0);
    assert_eq!(router.load(0).prefill_tokens, 1_000);
}

#[test]
fn the_requests_own_numbers_are_those_of_its_trace() {
    let names = [
        "request.prompt-tokens",
        "request.waited-ms",
        "request.stream",
        "request.decode-alone",
        "request.tried",
        "pool.workers",
        "request.hold-left-ms",
        "prefix.best-tokens",
    ];
    let policy = Scripted::row(&names, &[], 1);
    let mut router = router(&workers(3), &policy, &RouterSpec::default());
    router.cache_event(0, 2, &stored(&[1], Tier::Disk));
    let prompt = Request {
        at_us: 4_000,
        session: Some(7),
        grown_blocks: Box::default(),
        model: "".into(),
        after: None,
        tenant: None,
        ..request(1_000, &[1, 2])
    };
    router.place(9_000, arrives(41, &prompt), 2);
    let expected = [1_000.0, 5.0, 1.0, 1.0, 0.0, 3.0, 30_000.0, 512.0];
    assert_eq!(policy.numbers(), expected);
    let facts = policy.last().facts;
    assert_eq!((facts.seq, facts.attempt, facts.now_us), (42, 2, 9_000));
    assert!(facts.session.is_some_and(|session| session > 1 << 32));
}

#[test]
fn keys_are_of_whole_blocks_of_the_trace_and_of_all_of_a_shorter_prompt() {
    let names = [
        "prefix.key-256",
        "prefix.key-512",
        "prefix.key-1024",
        "prefix.key-4096",
    ];
    let policy = Scripted::row(&names, &[], 0);
    let mut router = router(&workers(1), &policy, &RouterSpec::default());
    let mut number = 0;
    let mut keys = |tokens, blocks: &[u64]| {
        number += 1;
        router.place(0, arrives(number, &request(tokens, blocks)), 0);
        policy.numbers()
    };
    let one = keys(2_000, &[1, 2, 3, 4]);
    assert!(
        one[0].is_nan(),
        "the beginning of a part of a block is not reported"
    );
    assert!(one[1] != one[2] && one[2] != one[3]);
    let other = keys(2_000, &[1, 2, 3, 5]);
    assert_eq!(one[1..3], other[1..3]);
    assert_ne!(one[3], other[3]);
    let short = keys(700, &[1, 2]);
    assert_eq!(short[1..], [one[1], one[2], one[2]]);
    assert_eq!(keys(200, &[1]), [one[1]; 4]);
}

#[test]
fn an_engine_report_has_its_age() {
    let columns = [
        "engine.running",
        "engine.waiting",
        "engine.kv-usage",
        "engine.age-ms",
    ];
    let policy = Scripted::row(&[], &columns, 0);
    let mut cluster = workers(1);
    cluster.workers[0].kv_tokens = 4_000;
    let mut router = router(&cluster, &policy, &RouterSpec::default());
    router.place(0, arrives(0, &some_request()), 0);
    assert!(policy.numbers().iter().all(|number| number.is_nan()));
    let load = EngineLoad {
        waiting: 2,
        computing: 1,
        decoding: 3,
        kv_tokens: 1_000,
    };
    router.record_engine_load(5_000, 0, &load);
    router.place(12_000, arrives(1, &some_request()), 0);
    assert_eq!(policy.numbers(), [4.0, 2.0, 0.25, 7.0]);
}
