//! Test cases of chains and holders, one by one. Kinds of blocks: `kinds.rs`. Their combinations: `differential.rs`.

mod chains;

use std::thread;

use chains::*;
use kv_index::WorkerMatch;
use routing::{BlockEvent, DpRank, StoredBlocks, Tier, WorkerId};

#[test]
fn matches_whole_blocks_of_the_longest_common_prefix() {
    let index = index();
    index.apply(holder(1, 0), &stored("abc", 0));
    assert_eq!(matched(&index, 1, "abc"), [3; 3]);
    assert_eq!(matched(&index, 1, "abx"), [2; 3]);
    assert_eq!(matched(&index, 1, "abcd"), [3; 3]);
    assert_eq!(matched(&index, 1, "xbc"), [0; 3]);
    assert_eq!(matched(&index, 2, "abc"), [0; 3]);
    let mut out = Vec::new();
    let mut cut = tokens("abc");
    cut.pop();
    index.matches(&mut query(&cut), &[WorkerId(1)], &mut out);
    assert_eq!(blocks(out[0]), [2; 3]);
    index.matches(&mut query(&[]), &[WorkerId(1)], &mut out);
    assert_eq!(out, [WorkerMatch::default()]);
}

#[test]
fn answers_in_the_order_queried_even_of_unknown_and_repeated_workers() {
    let index = index();
    index.apply(holder(1, 0), &stored("a", 0));
    index.apply(holder(2, 0), &stored("ab", 0));
    let mut out = Vec::new();
    index.matches(&mut query(&tokens("abc")), &[2, 9, 1, 2].map(WorkerId), &mut out);
    assert_eq!(
        out.iter().map(|&found| blocks(found)[0]).collect::<Vec<_>>(),
        [2, 0, 1, 2]
    );
}

#[test]
fn goes_on_from_a_parent_stored_before() {
    let index = index();
    index.apply(holder(1, 0), &stored("ab", 0));
    assert_eq!(
        index.apply(holder(1, 0), &stored("abcd", 2)),
        counts(|counts| counts.stored = 2)
    );
    assert_eq!(matched(&index, 1, "abcd"), [4; 3]);
}

#[test]
fn counts_a_repeated_store_as_known_and_one_removal_ends_it() {
    let index = index();
    index.apply(holder(1, 0), &stored("ab", 0));
    assert_eq!(
        index.apply(holder(1, 0), &stored("ab", 0)),
        counts(|counts| counts.known = 2)
    );
    index.apply(holder(1, 0), &removed("ab", None));
    assert_eq!(matched(&index, 1, "ab"), [1; 3]);
}

#[test]
fn does_not_index_blocks_of_an_unknown_parent() {
    let index = index();
    assert_eq!(
        index.apply(holder(1, 0), &stored("abc", 2)),
        counts(|counts| counts.unknown_parent = 1)
    );
    index.apply(holder(2, 0), &stored("ab", 0));
    assert_eq!(
        index.apply(holder(1, 0), &stored("abc", 2)).unknown_parent,
        1,
        "another worker's parent is no parent"
    );
    assert_eq!(matched(&index, 1, "abc"), [0; 3]);
    assert_eq!(index.held_blocks(WorkerId(1)), 0);
}

#[test]
fn survives_a_removal_before_the_store() {
    let index = index();
    assert_eq!(
        index.apply(holder(1, 0), &removed("a", None)),
        counts(|counts| counts.absent = 1)
    );
    index.apply(holder(1, 0), &stored("a", 0));
    assert_eq!(matched(&index, 1, "a"), [1; 3]);
}

#[test]
fn keeps_tiers_apart_and_answers_cumulatively() {
    let index = index();
    index.apply(holder(1, 0), &stored_on("abcd", Tier::Host));
    index.apply(holder(1, 0), &stored_on("ab", Tier::Device));
    index.apply(holder(1, 0), &stored_on("abcdef", Tier::Disk));
    assert_eq!(matched(&index, 1, "abcdef"), [2, 4, 6]);
    index.apply(holder(1, 0), &removed("a", Some(Tier::Device)));
    assert_eq!(matched(&index, 1, "abcdef"), [0, 4, 6]);
    index.apply(holder(1, 0), &removed("abcd", Some(Tier::Host)));
    assert_eq!(matched(&index, 1, "abcdef"), [0, 3, 6]);
    index.apply(holder(1, 0), &removed("ab", None));
    assert_eq!(matched(&index, 1, "abcdef"), [0, 1, 1]);
}

#[test]
fn stops_at_a_hole_until_it_is_filled_again() {
    let index = index();
    index.apply(holder(1, 0), &stored("abcd", 0));
    index.apply(holder(1, 0), &removed("ab", None));
    assert_eq!(matched(&index, 1, "abcd"), [1; 3]);
    index.apply(holder(1, 0), &stored("ab", 1));
    assert_eq!(matched(&index, 1, "abcd"), [4; 3]);
}

#[test]
fn removals_tail_first_shorten_the_match_one_by_one() {
    let index = index();
    index.apply(holder(1, 0), &stored("abcd", 0));
    for (end, left) in [(4, 3), (3, 2), (2, 1), (1, 0)] {
        index.apply(holder(1, 0), &removed(&"abcd"[..end], Some(Tier::Device)));
        assert_eq!(matched(&index, 1, "abcd"), [left; 3]);
    }
    assert_eq!(index.stats().blocks, 0);
    while index.gc_step() {}
    assert_eq!(index.stats().distinct_blocks, 0);
}

#[test]
fn one_content_under_two_engine_hashes_is_held_until_both_are_gone() {
    let index = index();
    index.apply(holder(1, 0), &stored("a", 0));
    let twin = StoredBlocks {
        hashes: vec![engine_hash("twin")],
        ..store("a", 0)
    };
    index.apply(holder(1, 0), &BlockEvent::Stored(twin));
    index.apply(holder(1, 0), &removed("a", None));
    assert_eq!(matched(&index, 1, "a"), [1; 3]);
    index.apply(holder(1, 0), &removed("twin", None));
    assert_eq!(matched(&index, 1, "a"), [0; 3]);
}

#[test]
fn one_engine_hash_for_two_contents_is_trusted_for_neither_until_cleared() {
    let index = index();
    index.apply(holder(1, 0), &stored("ab", 0));
    let liar = StoredBlocks {
        hashes: vec![engine_hash("ab")],
        ..store("x", 0)
    };
    assert_eq!(
        index.apply(holder(1, 0), &BlockEvent::Stored(liar)),
        counts(|counts| counts.ambiguous = 1)
    );
    assert_eq!(matched(&index, 1, "ab"), [1; 3]);
    assert_eq!(matched(&index, 1, "x"), [0; 3]);
    assert_eq!(index.apply(holder(1, 0), &stored("abc", 2)).unknown_parent, 1);
    assert_eq!(index.apply(holder(1, 0), &stored("ab", 1)).ambiguous, 1);
    index.clear(holder(1, 0));
    index.apply(holder(1, 0), &stored("ab", 0));
    assert_eq!(matched(&index, 1, "ab"), [2; 3]);
}

#[test]
fn a_cleared_cache_is_empty_at_once_and_others_are_untouched() {
    let index = index();
    for worker in [1, 2] {
        index.apply(holder(worker, 0), &stored("abc", 0));
    }
    index.apply(holder(1, 1), &stored("ab", 0));
    assert_eq!(
        index.apply(holder(1, 0), &BlockEvent::Cleared),
        counts(|counts| counts.cleared = 3)
    );
    assert_eq!(
        matched(&index, 1, "abc"),
        [2; 3],
        "the other rank keeps its blocks"
    );
    assert_eq!(matched(&index, 2, "abc"), [3; 3]);
    assert_eq!(
        index.apply(holder(1, 0), &stored("abc", 2)).unknown_parent,
        1,
        "its parents went with it"
    );
}

#[test]
fn removes_all_ranks_of_a_worker_and_gives_the_memory_back() {
    let index = index();
    let long = "abcdefghijklmnopqrstuvwxyz".repeat(20);
    for rank in 0..3 {
        index.apply(holder(1, rank), &stored(&long, 0));
    }
    index.apply(holder(2, 0), &stored("ab", 0));
    assert_eq!(index.remove_worker(WorkerId(1)).cleared, 3 * 520);
    assert_eq!(matched(&index, 1, &long), [0; 3]);
    assert_eq!(index.held_blocks(WorkerId(1)), 0);
    while index.gc_step() {}
    let stats = index.stats();
    assert_eq!(
        (stats.blocks, stats.distinct_blocks, stats.leaving, stats.holders),
        (2, 2, 0, 1)
    );
}

#[test]
fn a_worker_is_as_good_as_the_rank_that_holds_most_and_says_which() {
    let index = index();
    index.apply(holder(1, 0), &stored("a", 0));
    index.apply(holder(1, 7), &stored_on("abc", Tier::Host));
    index.apply(holder(1, 9), &stored_on("abc", Tier::Disk));
    assert_eq!(matched(&index, 1, "abc"), [0, 3, 3]);
    let tokens = tokens("abc");
    let (mut best, mut ranks) = (Vec::new(), Vec::new());
    index.matches(&mut query(&tokens), &[WorkerId(1)], &mut best);
    index.rank_matches(&mut query(&tokens), &[WorkerId(1)], &mut ranks);
    assert_eq!(best[0].rank, DpRank(7), "the lowest of those that hold as much");
    let ranks: Vec<_> = ranks
        .iter()
        .map(|rank| (rank.holder, blocks(rank.found)))
        .collect();
    assert_eq!(
        ranks,
        [
            (holder(1, 0), [1; 3]),
            (holder(1, 7), [0, 3, 3]),
            (holder(1, 9), [0, 0, 3])
        ]
    );
}

#[test]
fn more_than_a_thousand_holders_of_one_prefix_are_distinguished() {
    let index = index();
    for worker in 0..1500 {
        index.apply(
            holder(worker, 0),
            &stored(if worker % 2 == 0 { "ab" } else { "a" }, 0),
        );
    }
    let workers: Vec<WorkerId> = (0..1500).map(WorkerId).collect();
    let mut out = Vec::new();
    index.matches(&mut query(&tokens("ab")), &workers, &mut out);
    assert!(
        out.iter()
            .enumerate()
            .all(|(worker, &found)| blocks(found)[0] == if worker % 2 == 0 { 2 } else { 1 })
    );
}

#[test]
fn readers_never_see_more_than_was_stored_while_a_writer_works() {
    let index = index();
    let writer = index.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..2000_u32 {
                writer.apply(holder(1, 0), &stored("abcd", 0));
                match round % 3 {
                    0 => writer.apply(holder(1, 0), &removed("ab", None)),
                    1 => writer.clear(holder(1, 0)),
                    _ => writer.remove_worker(WorkerId(1)),
                };
            }
        });
        for _ in 0..2000 {
            let found = matched(&index, 1, "abcd")[0];
            assert!(
                [0, 1, 4].contains(&found),
                "{found} blocks is no state between two events"
            );
        }
    });
}
