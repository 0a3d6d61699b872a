//! Tests of prefill.

use super::*;

#[test]
fn one_prompt_goes_after_the_other() {
    let mut cluster = Cluster::new(&prefill_only(1), BLOCK);
    cluster.submit(0, 0, job(1, &[1, 2]));
    cluster.submit(5 * MS, 0, job(2, &[3]));
    assert_eq!(cluster.workers()[0].backlog_us(5 * MS), 27 * MS);
    let events = finish(&mut cluster);
    assert_eq!(first_tokens(&events), [(1, 21), (2, 32)]);
    assert_eq!(events.len(), 6, "each is computed, has its token and is over");
}

#[test]
fn a_cached_prompt_is_reused_except_its_last_token() {
    let mut cluster = Cluster::new(&prefill_only(1), BLOCK);
    cluster.submit(0, 0, job(1, &[1, 2]));
    cluster.submit(0, 0, job(2, &[1, 2, 3]));
    cluster.submit(0, 0, job(3, &[1, 2]));
    let events = finish(&mut cluster);
    assert_eq!(computed(&events), [(1, 21, 0), (2, 32, 20), (3, 34, 20)]);
}

#[test]
fn a_cache_that_takes_prompts_in_when_they_come_counts_what_is_not_computed_yet() {
    let spec = ClusterSpec {
        cache_timing: CacheTiming::Routed,
        ..prefill_only(1)
    };
    let mut cluster = Cluster::new(&spec, BLOCK);
    cluster.submit(0, 0, job(1, &[1, 2]));
    assert_eq!(cluster.workers()[0].cache().matched(&[1, 2]).any, 2);
    cluster.submit(0, 0, job(2, &[1, 2, 3]));
    assert_eq!(cluster.workers()[0].backlog_us(0), 32 * MS);
    assert_eq!(cluster.next_at(), Some(0), "it reports its cache at once");
    assert_eq!(computed(&finish(&mut cluster)), [(1, 21, 0), (2, 32, 20)]);
}

#[test]
fn a_faster_worker_takes_less() {
    let mut spec = prefill_only(1);
    spec.workers[0].speed = 2.0;
    let mut cluster = Cluster::new(&spec, BLOCK);
    cluster.submit(0, 0, job(1, &[1, 2]));
    assert_eq!(finish(&mut cluster)[0].at_us, 10_500);
}

#[test]
fn chunks_hold_several_prompts() {
    let spec = ClusterSpec {
        chunk_tokens: Some(16),
        ..prefill_only(1)
    };
    let mut cluster = Cluster::new(&spec, BLOCK);
    cluster.submit(0, 0, job(1, &[1, 2]));
    cluster.submit(0, 0, job(2, &[3, 4]));
    // Steps of 16; 4 and 12; 8 tokens, and 1 ms for each prompt.
    assert_eq!(first_tokens(&finish(&mut cluster)), [(1, 34), (2, 42)]);
}

#[test]
fn a_shorter_prompt_interrupts_a_longer_one_between_two_chunks_where_the_least_left_goes_first() {
    let orders = [
        (QueueOrder::Shortest, [(1, 34), (2, 42)]),
        (QueueOrder::ShortestLeft, [(2, 34), (1, 42)]),
    ];
    for (order, expected) in orders {
        let spec = ClusterSpec {
            chunk_tokens: Some(16),
            order,
            ..prefill_only(1)
        };
        let mut cluster = Cluster::new(&spec, BLOCK);
        cluster.submit(0, 0, job(1, &[1, 2, 3]));
        // It comes in the first step, after which 14 tokens of the other are left.
        cluster.submit(5 * MS, 0, job(2, &[4]));
        assert_eq!(first_tokens(&finish(&mut cluster)), expected);
    }
}

#[test]
fn a_limit_of_prompts_leaves_the_rest_of_a_step_empty() {
    let spec = ClusterSpec {
        chunk_tokens: Some(100),
        step_prompts: Some(1),
        ..prefill_only(1)
    };
    let mut cluster = Cluster::new(&spec, BLOCK);
    cluster.submit(0, 0, job(1, &[1, 2]));
    cluster.submit(0, 0, job(2, &[3, 4]));
    assert_eq!(first_tokens(&finish(&mut cluster)), [(1, 21), (2, 42)]);
}

#[test]
fn a_load_from_a_slow_tier_takes_time_only_where_it_is_longer_than_the_computation() {
    for (tiers, took) in [([2, 4, 0], 11), ([2, 0, 4], 40)] {
        let mut spec = prefill_only(1);
        spec.workers[0].cache_blocks = tiers;
        let mut cluster = Cluster::new(&spec, BLOCK);
        cluster.submit(0, 0, job(1, &[1, 2]));
        cluster.submit(0, 0, job(2, &[3, 4]));
        finish(&mut cluster);
        cluster.submit(100 * MS, 0, job(3, &[1, 2, 5]));
        assert_eq!(computed(&finish(&mut cluster)), [(3, 100 + took, 20)]);
    }
}

#[test]
fn the_order_is_evaluated_whenever_a_prompt_is_done() {
    let spec = ClusterSpec {
        order: QueueOrder::Shortest,
        ..prefill_only(1)
    };
    let mut cluster = Cluster::new(&spec, BLOCK);
    cluster.submit(0, 0, job(1, &[1]));
    cluster.submit(0, 0, job(2, &[2, 3, 4]));
    cluster.submit(0, 0, job(3, &[5]));
    assert_eq!(first_tokens(&finish(&mut cluster)), [(1, 11), (3, 22), (2, 53)]);
}
