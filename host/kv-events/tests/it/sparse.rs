//! Stores that leave out blocks, as vLLM's hybrid models send them beside a full one of the same tokens.

use kv_events::{RejectReason, decode_batch};
use routing::{Attention, BlockEvent, EngineBlockHash, ExtraKey};

use crate::encode::{Value, array, encode, ints, map, nil, text};

/// Returns four blocks of two tokens after block 10, as the full-attention group has them.
fn full() -> Value {
    stored(0, &[11, 12, 13, 14], "full_attention", &[])
}

/// Returns the same tokens, of which a group keeps the blocks of these hashes only.
fn stored(group: i64, hashes: &[i64], kind: &str, more: &[(&str, Value)]) -> Value {
    let fields = [
        ("type", text("BlockStored")),
        ("block_hashes", ints(hashes)),
        ("parent_block_hash", Value::Int(10)),
        ("token_ids", ints(&[1, 2, 3, 4, 5, 6, 7, 8])),
        ("block_size", Value::Int(2)),
        ("group_idx", Value::Int(group)),
        ("kv_cache_spec_kind", text(kind)),
    ];
    map(fields.into_iter().chain(more.iter().cloned()))
}

fn removed(hash: i64) -> Value {
    array([text("BlockRemoved"), ints(&[hash])])
}

/// Expected run of blocks: group, hashes, parent, tokens.
type Run<'a> = (u32, &'a [u64], Option<u64>, &'a [u32]);

/// Decodes the events. Returns the stores in order (a removal as one of nothing), and the places of the rejected.
#[track_caller]
fn check(events: &[Value], expected: &[Run<'_>], rejected: &[usize]) {
    let batch = decode_batch(&encode(&array([nil(), array(events.to_vec())]))).unwrap();
    let runs = batch.events.iter().map(|event| match event {
        BlockEvent::Stored(stored) => {
            let hashes: Vec<u64> = stored.hashes.iter().map(|hash| hash.0).collect();
            (
                stored.group,
                hashes,
                stored.parent.map(|hash| hash.0),
                stored.tokens.clone(),
            )
        }
        _ => (0, vec![], None, vec![]),
    });
    let runs: Vec<_> = runs.collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|&(group, hashes, parent, tokens)| (group, hashes.to_vec(), parent, tokens.to_vec()))
        .collect();
    assert_eq!(runs, expected);
    let places: Vec<_> = batch.rejected.samples().iter().map(|event| event.index).collect();
    assert_eq!(places, rejected);
    assert!(
        batch
            .rejected
            .samples()
            .iter()
            .all(|event| event.reason == RejectReason::SkippedBlocks)
    );
}

const ALL: Run<'_> = (0, &[11, 12, 13, 14], Some(10), &[1, 2, 3, 4, 5, 6, 7, 8]);
const REMOVAL: Run<'_> = (0, &[], None, &[]);

#[test]
fn a_checkpoint_hangs_on_the_full_groups_block_before_it() {
    let checkpoint = stored(1, &[14], "mamba", &[]);
    let last: Run<'_> = (1, &[14], Some(13), &[7, 8]);
    check(&[full(), checkpoint.clone()], &[ALL, last], &[]);
    // The checkpoint is announced after the store that names its parent.
    check(&[checkpoint, full()], &[ALL, last], &[]);
}

#[test]
fn neighbouring_blocks_stay_together_and_others_come_apart() {
    check(
        &[full(), stored(1, &[11, 13, 14], "sliding_window", &[])],
        &[
            ALL,
            (1, &[11], Some(10), &[1, 2]),
            (1, &[13, 14], Some(12), &[5, 6, 7, 8]),
        ],
        &[],
    );
}

#[test]
fn each_run_keeps_its_own_extra_keys_and_what_its_group_needs() {
    let keys = array([nil(), array([text("image")])]);
    let more = [
        ("extra_keys", keys),
        ("kv_cache_spec_sliding_window", Value::Int(5)),
    ];
    let events = array([full(), stored(1, &[12, 14], "sliding_window", &more)]);
    let batch = decode_batch(&encode(&array([nil(), events]))).unwrap();
    let [_, BlockEvent::Stored(first), BlockEvent::Stored(second)] = &batch.events[..] else {
        panic!("{batch:?}")
    };
    assert_eq!(first.extra_keys, [vec![]]);
    assert_eq!(second.extra_keys, [vec![ExtraKey::Text("image".into())]]);
    assert_eq!(second.attention, Attention::Window { tokens: 5 });
    assert_eq!(second.hashes, [EngineBlockHash(14)]);
}

#[test]
fn a_longer_block_has_the_hash_of_the_last_shorter_one_in_it() {
    let more = [("block_size", Value::Int(4))];
    let last: Run<'_> = (1, &[14], Some(12), &[5, 6, 7, 8]);
    check(&[full(), stored(1, &[14], "mamba", &more)], &[ALL, last], &[]);
    // No block of four tokens ends after two of them.
    check(&[full(), stored(1, &[13], "mamba", &more)], &[ALL], &[1]);
}

#[test]
fn a_group_that_keeps_nothing_of_a_range_reports_nothing() {
    check(&[stored(1, &[], "mamba", &[])], &[], &[]);
}

#[test]
fn no_store_of_another_range_is_laid_under_it() {
    for other in [
        ("parent_block_hash", Value::Int(9)),
        ("token_ids", ints(&[1, 2, 3, 4, 5, 6, 7, 9])),
        ("lora_name", text("ad")),
    ] {
        check(&[full(), stored(1, &[14], "mamba", &[other])], &[ALL], &[1]);
    }
    check(&[full(), stored(1, &[15], "mamba", &[])], &[ALL], &[1]);
    check(&[full(), stored(1, &[14, 13], "mamba", &[])], &[ALL], &[1]);
}

#[test]
fn nothing_is_moved_past_a_removal() {
    let checkpoint = stored(1, &[14], "mamba", &[]);
    let last: Run<'_> = (1, &[14], Some(13), &[7, 8]);
    check(&[checkpoint.clone(), removed(14), full()], &[REMOVAL, ALL], &[0]);
    check(&[full(), removed(1), checkpoint], &[ALL, REMOVAL, last], &[]);
}

#[test]
fn several_are_laid_out_each_in_its_place() {
    let (one, other) = (
        stored(1, &[14], "mamba", &[]),
        stored(2, &[12], "sliding_window", &[]),
    );
    check(
        &[one.clone(), other.clone(), full(), removed(1), one],
        &[
            ALL,
            (1, &[14], Some(13), &[7, 8]),
            (2, &[12], Some(11), &[3, 4]),
            REMOVAL,
            (1, &[14], Some(13), &[7, 8]),
        ],
        &[],
    );
    let lost = stored(2, &[99], "sliding_window", &[]);
    check(&[lost.clone(), full(), lost], &[ALL], &[0, 2]);
}
