//! Tests of decoding.

use super::*;
use crate::engine::TokenGaps;

/// Returns an answer of so many tokens to a prompt of ten that is there.
fn answer(request: usize, output_tokens: u32) -> Job {
    Job {
        output_tokens,
        kind: JobKind::Decode { first_us: None },
        ..job(request, &[request as u64])
    }
}

/// Returns a worker whose steps all take 10 ms, with room for so many tokens.
fn even(kv_tokens: u64) -> Cluster {
    let mut spec = mixed(1);
    if let Profile::Fitted(fitted) = &mut spec.profile {
        fitted.step_ms = [10.0, 0.0, 0.0];
    }
    spec.workers[0].kv_tokens = kv_tokens;
    Cluster::new(&spec, BLOCK)
}

/// Returns the finished requests with their end in milliseconds, and the times between their tokens.
fn finished(events: &[EngineEvent]) -> Vec<(usize, u64, TokenGaps)> {
    let ends = events.iter().filter_map(|event| match event.kind {
        EngineEventKind::Finished { request, gaps } => Some((request, event.at_us / MS, gaps)),
        _ => None,
    });
    ends.collect()
}

fn ends(events: &[EngineEvent]) -> Vec<(usize, u64)> {
    finished(events)
        .into_iter()
        .map(|(request, at_ms, _)| (request, at_ms))
        .collect()
}

#[test]
fn a_batch_gets_a_token_each_a_step() {
    let mut cluster = even(1_000);
    cluster.submit(0, 0, answer(1, 3));
    cluster.submit(5 * MS, 0, answer(2, 1));
    let events = finish(&mut cluster);
    assert_eq!(first_tokens(&events), [(1, 10), (2, 20)]);
    assert_eq!(ends(&events), [(2, 20), (1, 30)]);
    let (_, _, gaps) = finished(&events)[1];
    assert_eq!((gaps.count, gaps.tbt_us), (2, 10_000.0));
}

#[test]
fn a_finished_answer_is_cached_where_its_blocks_are_known() {
    for (grown, reused) in [(vec![1, 9], 20), (Vec::new(), 10)] {
        let mut cluster = Cluster::new(&mixed(1), BLOCK);
        let first = Job {
            output_tokens: 11,
            grown_blocks: grown.into(),
            ..job(1, &[1])
        };
        cluster.submit(0, 0, first);
        finish(&mut cluster);
        cluster.submit(1_000 * MS, 0, job(2, &[1, 9, 3]));
        let events = finish(&mut cluster);
        assert!(
            matches!(events[0].kind, EngineEventKind::PrefillDone { reuse, .. } if reuse.tokens() == reused),
            "{events:?}"
        );
    }
}

#[test]
fn steps_slow_down_with_the_tokens_they_read() {
    let mut cluster = Cluster::new(&mixed(1), BLOCK);
    cluster.submit(0, 0, answer(1, 2));
    cluster.submit(0, 0, answer(2, 2));
    // The first alone, 10 resident tokens; then 11 and 10; then what is left of the second, 11.
    let steps = [10_010, 10_021, 10_011];
    let at: Vec<u64> = finish(&mut cluster).iter().map(|event| event.at_us).collect();
    let [first, second, third] = [steps[0], steps[0] + steps[1], steps.iter().sum()];
    assert_eq!(at, [first, second, second, third]);
}

#[test]
fn a_request_that_does_not_fit_waits_until_another_ends() {
    let mut cluster = even(30);
    cluster.submit(0, 0, answer(1, 5));
    cluster.submit(0, 0, answer(2, 5));
    cluster.submit(0, 0, answer(3, 5));
    let load = cluster.workers()[0].load();
    assert_eq!((load.decoding, load.waiting), (1, 2));
    // The second is let in at the next step; the third when the first is over.
    assert_eq!(ends(&finish(&mut cluster)), [(1, 50), (2, 60), (3, 100)]);
}

#[test]
fn an_answer_too_large_for_the_worker_is_written_alone() {
    let mut cluster = even(15);
    cluster.submit(0, 0, answer(1, 20));
    cluster.submit(0, 0, answer(2, 2));
    assert_eq!(ends(&finish(&mut cluster)), [(1, 200), (2, 220)]);
}

#[test]
fn the_way_from_a_first_token_elsewhere_is_a_gap() {
    let mut cluster = even(1_000);
    let first_us = Some(100 * MS);
    cluster.submit(
        130 * MS,
        0,
        Job {
            kind: JobKind::Decode { first_us },
            ..answer(1, 3)
        },
    );
    let events = finish(&mut cluster);
    // This worker's own, the second of the answer.
    assert_eq!(first_tokens(&events), [(1, 140)]);
    let [(1, 150, gaps)] = finished(&events)[..] else {
        panic!("{events:?}");
    };
    assert_eq!((gaps.count, gaps.max_us, gaps.mean_us), (2, 40 * MS, 25_000.0));
}

#[test]
fn whole_prompts_hold_answers_up_and_chunks_only_slow_them_down() {
    for (chunk_tokens, longest_ms) in [(None, 51), (Some(11), 21)] {
        let mut spec = mixed(1);
        spec.chunk_tokens = chunk_tokens;
        if let Profile::Fitted(fitted) = &mut spec.profile {
            fitted.step_ms = [10.0, 0.0, 0.0];
        }
        let mut cluster = Cluster::new(&spec, BLOCK);
        cluster.submit(
            0,
            0,
            Job {
                output_tokens: 20,
                ..job(1, &[1])
            },
        );
        cluster.submit(30 * MS, 0, job(2, &[2, 3, 4, 5]));
        let events = finish(&mut cluster);
        let found = finished(&events);
        let (_, _, gaps) = found
            .iter()
            .find(|(request, ..)| *request == 1)
            .expect("it ended");
        assert_eq!(gaps.max_us, longest_ms * MS, "{chunk_tokens:?}");
        assert_eq!(found.len(), 2);
    }
}

#[test]
fn the_gaps_of_a_long_answer_are_exact_after_steps_were_forgotten() {
    let mut cluster = even(1_000_000);
    cluster.submit(0, 0, answer(1, 8_000));
    let mut events = Vec::new();
    cluster.advance(70_000 * MS, &mut events);
    cluster.submit(70_000 * MS, 0, answer(2, 9_000));
    events.extend(finish(&mut cluster));
    let counts: Vec<u32> = finished(&events).iter().map(|(_, _, gaps)| gaps.count).collect();
    assert_eq!(counts, [7_999, 8_999]);
    assert!(
        finished(&events)
            .iter()
            .all(|(_, _, gaps)| gaps.tbt_us == 10_000.0)
    );
}
