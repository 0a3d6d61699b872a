//! Models whose layers need different parts of a prefix: several groups of blocks in one cache.

mod chains;

use chains::*;
use routing::{Attention, BlockEvent, ExtraKey, RemovedBlocks, StoredBlocks};

#[test]
fn a_group_neither_stores_nor_removes_for_another() {
    let index = index();
    let in_group = |prompt, group| {
        let stored = StoredBlocks {
            group,
            ..store(prompt, 0)
        };
        index.apply(holder(1, 0), &BlockEvent::Stored(stored))
    };
    let leave = |prompt, group| {
        let hashes = vec![engine_hash(prompt)];
        let removed = RemovedBlocks {
            hashes,
            tier: None,
            group,
        };
        index.apply(holder(1, 0), &BlockEvent::Removed(removed))
    };
    in_group("abc", 0);
    assert_eq!(leave("abc", 1), counts(|counts| counts.absent = 1));
    in_group("ab", 1);
    assert_eq!(matched(&index, 1, "abc"), [2; 3], "both groups are needed");
    assert_eq!(leave("ab", 0), counts(|counts| counts.removed = 1));
    assert_eq!(matched(&index, 1, "abc"), [1; 3]);
}

#[test]
fn a_window_needs_only_the_end_of_a_prefix_and_a_state_only_its_last_block() {
    let index = index();
    let kinds = [Attention::Full, Attention::Window { tokens: 4 }, Attention::State];
    for (group, attention) in (0..).zip(kinds) {
        let stored = StoredBlocks {
            group,
            attention,
            ..store("abcdef", 0)
        };
        index.apply(holder(1, 0), &BlockEvent::Stored(stored));
    }
    let leave = |prompt, group| {
        let removed = RemovedBlocks {
            hashes: vec![engine_hash(prompt)],
            tier: None,
            group,
        };
        index.apply(holder(1, 0), &BlockEvent::Removed(removed));
    };
    for prompt in ["a", "ab", "abc"] {
        leave(prompt, 1);
        leave(prompt, 2);
    }
    assert_eq!(matched(&index, 1, "abcdef"), [6; 3]);
    assert_eq!(
        matched(&index, 1, "abcde"),
        [5; 3],
        "its window of 4 tokens ends in d and e"
    );
    assert_eq!(matched(&index, 1, "abcd"), [0; 3], "of the window, c is gone");
    leave("abcdef", 2);
    assert_eq!(matched(&index, 1, "abcdef"), [5; 3]);
    leave("ab", 0);
    assert_eq!(matched(&index, 1, "abcdef"), [0; 3]);
}

/// As vLLM announces a hybrid model: the long block of the state has the hash of the last short block in it.
#[test]
fn groups_of_unlike_block_sizes_share_one_chain() {
    let state = |prompt: &str, ends: &[usize]| {
        BlockEvent::Stored(StoredBlocks {
            hashes: ends.iter().map(|&end| engine_hash(&prompt[..end])).collect(),
            block_size: 2 * BLOCK,
            group: 1,
            attention: Attention::State,
            ..store(prompt, 0)
        })
    };
    for state_comes_first in [false, true] {
        let index = index();
        let mut events = [stored("abcdef", 0), state("abcdef", &[2, 4, 6])];
        if state_comes_first {
            events.reverse();
        }
        for event in &events {
            index.apply(holder(1, 0), event);
        }
        if state_comes_first {
            assert_eq!(
                matched(&index, 1, "abcdef"),
                [0; 3],
                "its longer blocks had to be forgotten"
            );
            index.apply(holder(1, 0), &events[0]);
        }
        assert_eq!(matched(&index, 1, "abcdef"), [6; 3]);
        assert_eq!(
            matched(&index, 1, "abcde"),
            [4; 3],
            "a whole number of both groups' blocks"
        );
        index.apply(
            holder(1, 0),
            &BlockEvent::Removed(RemovedBlocks {
                hashes: vec![engine_hash("abcdef")],
                tier: None,
                group: 1,
            }),
        );
        assert_eq!(matched(&index, 1, "abcdef"), [4; 3]);
    }
}

/// A name of one group counts with the content that the other announced, and the blocks after it continue from there.
#[test]
fn groups_that_disagree_on_a_block_never_make_up_a_prefix() {
    let index = index();
    let with_image = StoredBlocks {
        extra_keys: vec![vec![], vec![ExtraKey::Int(1)]],
        ..store("ab", 0)
    };
    index.apply(holder(1, 0), &BlockEvent::Stored(with_image));
    let without = StoredBlocks {
        hashes: [2, 4].map(|end| engine_hash(&"abcd"[..end])).into(),
        block_size: 2 * BLOCK,
        group: 1,
        ..store("abcd", 0)
    };
    index.apply(holder(1, 0), &BlockEvent::Stored(without));
    assert_eq!(matched(&index, 1, "abcd"), [0; 3]);
}
