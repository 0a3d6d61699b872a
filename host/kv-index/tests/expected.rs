//! Blocks that are expected where a request was just sent.

mod chains;

use chains::*;
use kv_index::{Prediction, Prompt, Sent, SharedPrefixIndex, WorkerMatch};
use proptest::prelude::*;
use routing::{Attention, BlockEvent, RemovedBlocks, StoredBlocks, WorkerId};

fn send(index: &SharedPrefixIndex, worker: u32, prompt: &str, capacity: u64) -> Option<Prediction> {
    let sent = Sent {
        worker: WorkerId(worker),
        block_size: BLOCK,
        capacity,
    };
    index.expect(&sent, &mut Prompt::new(tokens(prompt), None, None))
}

fn retract(index: &SharedPrefixIndex, prediction: Prediction, prompt: &str) {
    index.retract(prediction, &mut Prompt::new(tokens(prompt), None, None));
}

fn found(index: &SharedPrefixIndex, worker: u32, prompt: &str) -> WorkerMatch {
    let tokens = tokens(prompt);
    let mut out = Vec::new();
    index.matches(&mut query(&tokens), &[WorkerId(worker)], &mut out);
    out[0]
}

#[test]
fn a_prediction_that_is_taken_back_leaves_what_was_predicted_before() {
    let index = index();
    send(&index, 1, "ab", 100);
    let prediction = send(&index, 1, "abcd", 100).unwrap();
    let again = send(&index, 1, "abcd", 100).unwrap();
    retract(&index, again, "abcd");
    assert_eq!(
        found(&index, 1, "abcd").expected_tokens,
        4 * BLOCK,
        "it added nothing"
    );
    retract(&index, prediction, "abcd");
    assert_eq!(found(&index, 1, "abcd").expected_tokens, 2 * BLOCK);
    assert_eq!(index.stats().expected, 2);
    send(&index, 1, "abcd", 100);
    assert_eq!(found(&index, 1, "abcd").expected_tokens, 4 * BLOCK);
}

#[test]
fn a_prediction_ends_with_blocks_of_the_full_group_only() {
    let index = index();
    let kinds = [Attention::Window { tokens: 4 }, Attention::Full];
    for (group, attention) in (0..).zip(kinds) {
        let stored = StoredBlocks {
            group,
            attention,
            ..store("ab", 0)
        };
        index.apply(holder(1, 0), &BlockEvent::Stored(stored));
    }
    send(&index, 1, "abcd", 100);
    let leave = |group| {
        let removed = RemovedBlocks {
            hashes: vec![engine_hash("a")],
            tier: None,
            group,
        };
        index.apply(holder(1, 0), &BlockEvent::Removed(removed));
    };
    leave(0);
    assert_eq!(found(&index, 1, "abcd").expected_tokens, 4 * BLOCK);
    leave(1);
    assert_eq!(found(&index, 1, "abcd").expected_tokens, 0);
}

#[test]
fn a_prediction_that_has_expired_is_not_taken_back() {
    let index = index();
    let prediction = send(&index, 1, "abcd", 100).unwrap();
    index.age_expected(&[WorkerId(1)]);
    index.age_expected(&[WorkerId(1)]);
    send(&index, 2, "abcd", 100);
    retract(&index, prediction, "abcd");
    assert_eq!(found(&index, 2, "abcd").expected_tokens, 4 * BLOCK);
}

#[test]
fn siblings_of_a_request_find_its_prefix_at_once_and_elsewhere_nothing() {
    let index = index();
    send(&index, 1, "abcd", 100);
    let sibling = found(&index, 1, "abxy");
    assert_eq!(
        (sibling.expected_tokens, sibling.device_tokens),
        (2 * BLOCK, 2 * BLOCK)
    );
    assert_eq!(matched(&index, 2, "abcd"), [0; 3]);
    assert_eq!(index.held_blocks(WorkerId(1)), 0, "nothing is held yet");
    assert_eq!(index.stats().expected, 4);
}

#[test]
fn an_expectation_passes_with_the_second_ageing_since_the_last_request() {
    let index = index();
    let age = || index.age_expected(&[WorkerId(1)]);
    send(&index, 1, "ab", 100);
    age();
    assert_eq!(matched(&index, 1, "ab"), [2; 3]);
    send(&index, 1, "a", 100);
    age();
    assert_eq!(matched(&index, 1, "ab"), [1; 3], "only `a` was sent again");
    age();
    assert_eq!(matched(&index, 1, "ab"), [0; 3]);
    while index.gc_step() {}
    let stats = index.stats();
    assert_eq!((stats.expected, stats.distinct_blocks), (0, 0));
}

#[test]
fn events_are_not_affected_and_outlast_what_was_expected() {
    let index = index();
    send(&index, 1, "abcd", 100);
    assert_eq!(
        index.apply(holder(1, 0), &stored("ab", 0)),
        counts(|counts| counts.stored = 2)
    );
    let before = found(&index, 1, "abcd");
    assert_eq!(
        (before.device_tokens, before.expected_tokens),
        (4 * BLOCK, 4 * BLOCK)
    );
    index.age_expected(&[WorkerId(1)]);
    index.age_expected(&[WorkerId(1)]);
    let after = found(&index, 1, "abcd");
    assert_eq!((after.device_tokens, after.expected_tokens), (2 * BLOCK, 0));
    assert_eq!(index.held_blocks(WorkerId(1)), 2);
}

#[test]
fn a_worker_without_events_keeps_what_was_sent_last_within_its_capacity() {
    let index = index();
    for first in 'a'..='z' {
        send(&index, 1, &format!("{first}bcde"), 20);
        assert!(index.stats().expected <= 25, "{:?}", index.stats());
        assert_eq!(
            matched(&index, 1, &format!("{first}bcde")),
            [5; 3],
            "the last one is expected"
        );
    }
    assert_eq!(matched(&index, 1, "abcde"), [0; 3]);
}

#[test]
fn a_long_prompt_ages_the_predictions_of_a_worker_once() {
    for (length, times) in [(150, 0), (250, 1), (1_000, 1)] {
        let (index, capacity) = (index(), 252);
        send(&index, 1, "old", capacity);
        index.age_expected(&[WorkerId(1)]);
        send(&index, 1, "short", capacity);
        let long = "l".repeat(length);
        send(&index, 1, &long, capacity);
        let found = ["old", "short", &long].map(|prompt| matched(&index, 1, prompt)[0]);
        let old = if times == 0 { 3 } else { 0 };
        assert_eq!(found, [old, 5, length.min(252) as u32], "{length} blocks");
    }
}

#[test]
fn no_more_blocks_of_a_prompt_are_expected_than_a_cache_holds() {
    for capacity in [0, 1, 2, 64, 65, 200] {
        let index = index();
        let long = "l".repeat(300);
        for _ in 0..3 {
            send(&index, 1, &long, capacity);
            assert_eq!(matched(&index, 1, &long)[0], capacity as u32);
        }
        assert!(index.stats().expected <= 2 * capacity as usize);
    }
}

#[test]
fn nothing_is_expected_of_a_worker_that_left() {
    let index = index();
    send(&index, 1, "ab", 100);
    index.remove_worker(WorkerId(1));
    assert_eq!(matched(&index, 1, "ab"), [0; 3]);
    send(&index, 1, "a", 100);
    assert_eq!(matched(&index, 1, "ab"), [1; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Prompts of two letters branch everywhere, and events of a worker in between make and divide runs. Long ones are
    /// inserted in parts.
    #[test]
    fn each_worker_is_expected_to_hold_the_beginnings_of_its_prompts(
        sent in prop::collection::vec((1..4_u32, "[ab]{1,40}", 0..5_usize, any::<bool>()), 1..40), asked in "[ab]{40}",
    ) {
        let index = index();
        let sent = sent.into_iter().map(|(worker, prompt, times, is_stored)| {
            let long = "ab".repeat(25 * times);
            (worker, long + &prompt + &"b".repeat(20 * times), is_stored)
        });
        let sent: Vec<_> = sent.collect();
        for (worker, prompt, is_stored) in &sent {
            if *is_stored {
                index.apply(holder(9, 0), &stored(prompt, 0));
            }
            send(&index, *worker, prompt, 1 << 20);
        }
        let asked = sent.iter().map(|(_, prompt, _)| prompt).chain([&asked]);
        for (asked, worker) in asked.flat_map(|asked| (1..4).map(move |worker| (asked, worker))) {
            let common = |prompt: &String| prompt.bytes().zip(asked.bytes()).take_while(|(a, b)| a == b).count();
            let own = sent.iter().filter(|(to, ..)| *to == worker);
            let depth = own.map(|(_, prompt, _)| common(prompt)).max().unwrap_or(0) as u32;
            prop_assert_eq!(found(&index, worker, asked).expected_tokens, depth * BLOCK, "{} at {}", asked, worker);
        }
    }
}
