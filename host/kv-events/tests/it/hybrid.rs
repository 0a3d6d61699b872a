//! Announcements of vLLM 0.32's own cache manager for hybrid models, recorded by `tests/recorded/vllm_hybrid.py`: two
//! prompts of 32 tokens that part after 16. Tokens 0 to 31 are the first prompt's, 100 to 115 the second's own.

use std::collections::HashMap;

use kv_events::{RejectReason, decode_batch};
use routing::{BlockEvent, StoredBlocks};
use serde_json::Value;

use crate::recordings::unhex;

const RECORDED: &str = include_str!("../recorded/vllm_hybrid.jsonl");

/// Returns group, blocks, and the tokens from the first to the last.
fn outline(stored: &StoredBlocks) -> String {
    let (group, count, size) = (stored.group, stored.hashes.len(), stored.block_size);
    let (first, last) = (stored.tokens[0], stored.tokens[stored.tokens.len() - 1]);
    format!("{group}: {count} of {size}, {first} to {last}")
}

#[track_caller]
fn check(name: &str, expected: &[&str], rejected: usize) {
    let scenarios = RECORDED
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let scenario = scenarios.into_iter().find(|line| line["name"] == name).unwrap();
    let (mut stores, mut reasons) = (Vec::new(), Vec::new());
    for payload in scenario["payloads"].as_array().unwrap() {
        let batch = decode_batch(&unhex(payload.as_str().unwrap())).unwrap();
        reasons.extend(batch.rejected.samples().iter().map(|event| event.reason));
        stores.extend(batch.events.into_iter().map(|event| match event {
            BlockEvent::Stored(stored) => stored,
            other => panic!("{other:?} is no store"),
        }));
    }
    assert_eq!(stores.iter().map(outline).collect::<Vec<_>>(), expected);
    assert_eq!(reasons, vec![RejectReason::SkippedBlocks; rejected]);
    one_name_ends_one_prefix(&stores);
}

/// Checks that every hash stands after the same token wherever it was placed, and a parent before its child's first.
#[track_caller]
fn one_name_ends_one_prefix(stores: &[StoredBlocks]) {
    let mut ends = HashMap::new();
    for stored in stores {
        let blocks = stored.tokens.chunks(stored.block_size as usize);
        for (hash, block) in stored.hashes.iter().zip(blocks) {
            let last = block[block.len() - 1];
            assert_eq!(*ends.entry(*hash).or_insert(last), last);
        }
    }
    for stored in stores {
        let known = stored.parent.and_then(|parent| ends.get(&parent));
        if let Some(&end) = known {
            assert!(end + 1 == stored.tokens[0] || (end, stored.tokens[0]) == (15, 100));
        }
    }
}

#[test]
fn checkpoints_of_state_space_layers_are_placed() {
    check(
        "state-space layers, one step",
        &[
            "0: 8 of 4, 0 to 31",
            "1: 1 of 4, 28 to 31",
            "0: 8 of 4, 0 to 115",
            "1: 1 of 4, 112 to 115",
        ],
        0,
    );
}

#[test]
fn checkpoints_in_longer_blocks_are_placed() {
    check(
        "state-space layers in longer blocks",
        &[
            "0: 8 of 4, 0 to 31",
            "1: 1 of 8, 24 to 31",
            "0: 8 of 4, 0 to 115",
            "1: 1 of 8, 108 to 115",
        ],
        0,
    );
}

#[test]
fn blocks_kept_by_a_sliding_window_are_placed() {
    check(
        "sliding window, sparse checkpoints",
        &[
            "0: 8 of 4, 0 to 31",
            "1: 2 of 4, 8 to 15",
            "1: 3 of 4, 20 to 31",
            "0: 4 of 4, 100 to 115",
            "1: 3 of 4, 104 to 115",
        ],
        0,
    );
}

/// The full group's hashes are too few to distinguish the shorter blocks.
#[test]
fn blocks_shorter_than_the_full_groups_are_not() {
    check(
        "sliding window, full attention first in longer blocks",
        &[
            "0: 2 of 16, 0 to 31",
            "0: 1 of 4, 24 to 27",
            "0: 1 of 16, 100 to 115",
            "0: 1 of 4, 108 to 111",
        ],
        2,
    );
}
