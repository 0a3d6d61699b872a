//! Predicted costs.

use routing::Tier;

use super::*;
use crate::engine::Fetch;
use crate::router::CostSource;
use crate::spec::FetchRule;

const COSTS: [&str; 4] = [
    "cost.prefill-ms",
    "cost.token-ms",
    "cost.transfer-ms",
    "cost.tbt-ms",
];

fn with(costs: CostSource) -> RouterSpec {
    RouterSpec {
        costs,
        ..RouterSpec::default()
    }
}

fn exact() -> RouterSpec {
    with(CostSource::Exact(Profile::default()))
}

#[track_caller]
fn near(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() <= 1e-3 + 1e-6 * expected.abs(),
        "{value}, expected {expected}"
    );
}

/// Returns the prefill time in milliseconds.
fn prefill_ms(prompt: u32, cached: u32) -> f64 {
    Profile::default().prefill_us(prompt, cached) as f64 / 1e3
}

#[test]
fn learnt_costs_are_unknown_until_enough_was_measured() {
    let policy = Scripted::row(&[], &COSTS, 0);
    let mut router = router(&roles(&[Role::Mixed]), &policy, &RouterSpec::default());
    for number in 0..40 {
        let at_us = 10_000_000 * number as u64;
        let blocks = 1 + number as u64 % 8;
        let tokens = blocks as u32 * BLOCK;
        let ids: Vec<u64> = (0..blocks).map(|block| 100 * number as u64 + block).collect();
        router.place(at_us, arrives(number, &request(tokens, &ids)), 0);
        assert_eq!(policy.numbers()[0].is_nan(), number < 16);
        // 0.1 ms a token, then 20 ms between tokens.
        let first_us = at_us + 100 * u64::from(tokens);
        router.first_token(first_us, number, 0);
        router.finished(first_us + 20_000 * 100, number, 101);
    }
    router.place(u64::MAX / 2, arrives(40, &request(1_024, &[1, 2])), 0);
    let [prefill_ms, token_ms, transfer_ms, tbt_ms] = policy.numbers()[..] else {
        panic!("four columns")
    };
    assert!((prefill_ms - 102.4).abs() < 1.0 && (token_ms - 0.1).abs() < 1e-3);
    assert!(transfer_ms.is_nan() && (tbt_ms - 20.0).abs() < 0.5);
}

#[test]
fn exact_costs_are_the_profiles_for_the_workers_speed() {
    let policy = Scripted::row(&[], &["cost.prefill-ms", "cost.tbt-ms"], 0);
    let mut cluster = roles(&[Role::Mixed, Role::Mixed]);
    cluster.workers[1].speed = 2.0;
    let mut router = router(&cluster, &policy, &exact());
    router.cache_event(0, 1, &stored(&[1, 2], Tier::Device));
    router.place(0, arrives(0, &request(2_048, &[1, 2, 3, 4])), 0);
    let numbers = policy.numbers();
    let step_ms = Profile::default().step_us(1, 2_048) as f64 / 1e3;
    near(numbers[0], prefill_ms(2_048, 0));
    near(numbers[1], step_ms);
    near(numbers[2], prefill_ms(2_048, 1_024) / 2.0);
    near(numbers[3], step_ms / 2.0);
}

#[test]
fn exact_costs_load_cached_blocks_beside_the_computation() {
    let policy = Scripted::row(&[], &["cost.prefill-ms"], 0);
    let mut router = router(&roles(&[Role::Mixed; 3]), &policy, &exact());
    let blocks: Vec<u64> = (1..=64).collect();
    router.cache_event(0, 1, &stored(&blocks[..32], Tier::Disk));
    router.cache_event(0, 2, &stored(&blocks[..62], Tier::Disk));
    router.place(0, arrives(0, &request(32_768, &blocks)), 0);
    let numbers = policy.numbers();
    near(numbers[0], prefill_ms(32_768, 0));
    near(numbers[1], prefill_ms(32_768, 16_384));
    // To load nearly all of it takes longer than to compute the rest.
    near(
        numbers[2],
        Profile::default().disk_load_us(62 * BLOCK) as f64 / 1e3,
    );
}

#[test]
fn the_exact_wait_is_the_price_of_a_token_times_the_tokens_that_wait() {
    let policy = Scripted::row(
        &[],
        &["load.prefill-tokens", "cost.token-ms", "cost.prefill-ms"],
        0,
    );
    let mut router = router(&workers(1), &policy, &exact());
    let wait_ms = || {
        let numbers = policy.numbers();
        numbers[0] * numbers[1]
    };
    let (short, long) = (
        request(512, &[1]),
        request(4_096, &[11, 12, 13, 14, 15, 16, 17, 18]),
    );
    router.place(0, arrives(0, &long), 0);
    near(wait_ms(), 0.0);
    near(policy.numbers()[1], prefill_ms(4_096, 0) / 4_096.0);
    router.place(0, arrives(1, &short), 0);
    near(wait_ms(), prefill_ms(4_096, 0));
    router.place(100_000, arrives(2, &short), 0);
    near(wait_ms(), prefill_ms(4_096, 0) + prefill_ms(512, 0) - 100.0);
    let done_us = Profile::default().prefill_us(4_096, 0);
    router.first_token(done_us, 0, 0);
    router.left(done_us, 2);
    router.place(done_us, arrives(3, &short), 0);
    near(wait_ms(), prefill_ms(512, 0));
}

#[test]
fn wrong_costs_are_off_by_a_factor_of_the_requests_own() {
    let factors = |seed| -> Vec<f64> {
        let policy = Scripted::row(&[], &["cost.prefill-ms"], 0);
        let spec = RouterSpec {
            seed,
            ..with(CostSource::Wrong { sigma: 0.7 })
        };
        let mut router = router(&workers(2), &policy, &spec);
        let factor = |number| {
            router.place(0, arrives(number, &some_request()), 0);
            router.left(0, number);
            let numbers = policy.numbers();
            near(numbers[0], numbers[1]);
            numbers[0] / prefill_ms(1_024, 0)
        };
        (0..2_000).map(factor).collect()
    };
    let logs: Vec<f64> = factors(1).into_iter().map(f64::ln).collect();
    let mean = logs.iter().sum::<f64>() / 2_000.0;
    let deviation = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 2_000.0).sqrt();
    assert!(
        mean.abs() < 0.05 && (deviation - 0.7).abs() < 0.05,
        "{mean} {deviation}"
    );
    assert_eq!(factors(1), factors(1));
    assert_ne!(factors(1), factors(2));
}

/// Returns the predicted time of worker 1, and its fetch. Worker 1 has the first `own` of eight blocks, worker 0 the
/// first six.
fn fetching(rule: FetchRule, own: usize) -> (f64, Option<Fetch>) {
    const BLOCKS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let policy = Scripted::row(&[], &["cost.prefill-ms"], 1);
    let mut cluster = workers(2);
    cluster.fetch = rule;
    let mut router = router(&cluster, &policy, &exact());
    router.cache_event(0, 0, &stored(&BLOCKS[..6], Tier::Device));
    if own > 0 {
        router.cache_event(0, 1, &stored(&BLOCKS[..own], Tier::Device));
    }
    let placement = router.place(0, arrives(0, &request(4_096, &BLOCKS)), 0);
    let Placement::Dispatch { fetch, .. } = placement else {
        panic!("{placement:?}")
    };
    (policy.numbers()[1], fetch)
}

#[test]
fn a_prefix_is_fetched_by_the_clusters_rule_and_priced_with_it() {
    let transfer_ms = |tokens| Profile::default().transfer_us(tokens) as f64 / 1e3;
    let from_0 = Some(Fetch { from: 0, blocks: 6 });
    let (ms, fetch) = fetching(FetchRule::Off, 2);
    near(ms, prefill_ms(4_096, 1_024));
    assert_eq!(fetch, None);
    let (ms, fetch) = fetching(FetchRule::Cheapest, 2);
    near(ms, transfer_ms(2_048) + prefill_ms(4_096, 3_072));
    assert_eq!(fetch, from_0);
    let (ms, fetch) = fetching(FetchRule::Ratio(1.5), 4);
    near(ms, prefill_ms(4_096, 2_048));
    assert_eq!(fetch, None, "6 / 4 is good enough");
    let (_, fetch) = fetching(FetchRule::Ratio(1.5), 3);
    assert_eq!(fetch, from_0);
    let (ms, fetch) = fetching(FetchRule::Ratio(1e9), 0);
    near(ms, transfer_ms(3_072) + prefill_ms(4_096, 3_072));
    assert_eq!(fetch, from_0, "nothing of its own is never good enough");
    assert_eq!(fetching(FetchRule::Cheapest, 6).1, None);
}

#[test]
fn a_policy_that_reads_no_matches_has_its_prefixes_fetched_all_the_same() {
    let policy = Scripted::row(&[], &[], 1);
    let mut cluster = workers(2);
    cluster.fetch = FetchRule::Cheapest;
    let mut router = router(&cluster, &policy, &RouterSpec::default());
    router.cache_event(0, 0, &stored(&[1, 2, 3, 4], Tier::Device));
    let placement = router.place(0, arrives(0, &request(2_048, &[1, 2, 3, 4])), 0);
    let Placement::Dispatch { fetch, matched, .. } = placement else {
        panic!("{placement:?}")
    };
    assert_eq!(fetch, Some(Fetch { from: 0, blocks: 4 }));
    assert_eq!(matched, None);
}

#[test]
fn answers_show_the_share_of_the_prefix_that_is_fetched() {
    let policy = Scripted::row(&[], &["prefix.any-tokens", "cost.fetched-share"], 0);
    let spec = RouterSpec {
        expect_us: 0,
        ..RouterSpec::default()
    };
    let mut router = router(&workers(2), &policy, &spec);
    router.cache_event(0, 1, &stored(&[1, 2, 3, 4], Tier::Device));
    let prompt = request(4_096, &[1, 2, 3, 4, 5, 6, 7, 8]);
    for number in 0..4 {
        router.place(0, arrives(number, &prompt), 0);
        assert!(policy.numbers()[1].is_nan());
        // It had half of the 2,048 tokens that the other holds.
        router.prompt_cached(number, 1, 4_096);
        router.prompt_cached(number, 0, 1_024);
        router.left(0, number);
    }
    router.place(0, arrives(4, &prompt), 0);
    let numbers = policy.numbers();
    near(numbers[1], 0.5);
    assert!(numbers[3].is_nan());
}
