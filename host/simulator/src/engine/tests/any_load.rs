//! Invariants under any load.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::EngineLoad;

fn specs() -> impl Strategy<Value = ClusterSpec> {
    let chunks = prop_oneof![Just(None), Just(Some(8)), Just(Some(64))];
    let orders = prop_oneof![
        Just(QueueOrder::Fifo),
        Just(QueueOrder::Shortest),
        Just(QueueOrder::ShortestLeft),
        Just(QueueOrder::SlackGuarded { limit_us: 50 * MS }),
    ];
    let parts = (chunks, orders, any::<[bool; 3]>(), 1_u64..400);
    parts.prop_map(|(chunk_tokens, order, [share, routed, decode], kv_tokens)| {
        let mut spec = ClusterSpec {
            chunk_tokens,
            order,
            decode,
            transfers: if share {
                Transfers::ShareSender
            } else {
                Transfers::HoldReceiver
            },
            cache_timing: if routed {
                CacheTiming::Routed
            } else {
                CacheTiming::Computed
            },
            ..mixed(3)
        };
        for worker in &mut spec.workers {
            worker.cache_blocks = [6, 3, 3];
            worker.kv_tokens = kv_tokens;
        }
        spec
    })
}

/// Jobs with the time before each, in milliseconds, and the worker each goes to.
fn jobs() -> impl Strategy<Value = Vec<(u64, usize, Job)>> {
    let kinds = prop_oneof![
        Just(JobKind::Whole),
        Just(JobKind::Prefill),
        Just(JobKind::Decode { first_us: None }),
        Just(JobKind::Decode { first_us: Some(0) }),
    ];
    let fetch = prop::option::of((0_usize..3, 0_usize..6).prop_map(|(from, blocks)| Fetch { from, blocks }));
    let one = (
        0_u64..60,
        0_usize..3,
        kinds,
        fetch,
        (0_u64..3, 1_u64..6, 1_u32..30),
    );
    prop::collection::vec(one, 1..25).prop_map(|all| {
        let jobs = all.into_iter().enumerate();
        let jobs = jobs.map(
            |(request, (wait, worker, kind, fetch, (family, blocks, output_tokens)))| {
                let blocks: Vec<u64> = (0..blocks)
                    .map(|at| if at < 2 { at } else { 10 * family + at })
                    .collect();
                let job = Job {
                    kind,
                    fetch,
                    output_tokens,
                    ..job(request, &blocks)
                };
                (wait, worker, job)
            },
        );
        jobs.collect()
    })
}

/// Runs a cluster with its jobs, advances it at least every so often, and returns all its events.
fn events(spec: &ClusterSpec, jobs: &[(u64, usize, Job)], look_us: u64) -> (Cluster, Vec<EngineEvent>) {
    let mut cluster = Cluster::new(spec, BLOCK);
    let (mut now_us, mut events) = (0, Vec::new());
    for (wait_ms, worker, job) in jobs {
        let next_us = now_us + wait_ms * MS;
        while now_us < next_us {
            now_us = next_us.min(now_us.saturating_add(look_us));
            cluster.advance(now_us, &mut events);
        }
        cluster.submit(now_us, *worker, job.clone());
        assert!(cluster.next_at().is_none_or(|at| at >= now_us));
    }
    while let Some(next_us) = cluster.next_at() {
        now_us = next_us.min(now_us.saturating_add(look_us)).max(now_us);
        cluster.advance(now_us, &mut events);
    }
    (cluster, events)
}

proptest! {
    #[test]
    fn nothing_depends_on_how_often_one_looks(spec in specs(), jobs in jobs()) {
        prop_assert_eq!(events(&spec, &jobs, 700).1, events(&spec, &jobs, u64::MAX).1);
    }

    #[test]
    fn every_job_ends_once_in_order_of_time_and_nothing_is_left(spec in specs(), jobs in jobs()) {
        let (cluster, events) = events(&spec, &jobs, u64::MAX);
        let kinds = jobs.iter().map(|(_, _, job)| (job.request, job.kind));
        let mut expected: BTreeMap<usize, JobKind> = kinds.collect();
        prop_assert!(events.is_sorted_by_key(|event| event.at_us));
        for event in &events {
            let over = match event.kind {
                EngineEventKind::PrefillDone { request, .. } => {
                    (expected[&request] == JobKind::Prefill).then_some(request)
                }
                EngineEventKind::Finished { request, .. } => Some(request),
                _ => None,
            };
            prop_assert!(over.is_none_or(|request| expected.remove(&request).is_some()));
        }
        prop_assert!(expected.is_empty(), "{expected:?} never ended");
        for worker in cluster.workers() {
            prop_assert_eq!(worker.load(), EngineLoad::default());
        }
    }
}
