//! Memory that was taken for blocks is given back when their holders leave.

mod chains;

use chains::*;
use kv_index::{IndexStats, SharedPrefixIndex};
use routing::{
    Attention, BlockEvent, EngineBlockHash, ObjectEvent, RemovedBlocks, Shard, StoreId, StoreObject,
    StoredBlocks, Tier, WorkerId,
};

/// Stores `chains` chains of `blocks` blocks each, which no other `salt` has.
fn fill(index: &SharedPrefixIndex, worker: u32, salt: u32, [chains, blocks]: [u32; 2]) {
    for chain in 0..chains {
        let tokens = (0..blocks).flat_map(|block| [salt, chain << 12 | block]);
        let name = |block| u64::from(salt) << 48 | u64::from(chain) << 16 | u64::from(block);
        let stored = StoredBlocks {
            hashes: (0..blocks).map(|block| EngineBlockHash(name(block))).collect(),
            parent: None,
            tokens: tokens.collect(),
            block_size: BLOCK,
            tier: Tier::Device,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        };
        index.apply(holder(worker, 0), &BlockEvent::Stored(stored));
    }
}

fn settled(index: &SharedPrefixIndex) -> IndexStats {
    while index.gc_step() {}
    index.stats()
}

#[test]
fn almost_nothing_is_kept_of_an_engine_that_left() {
    // Long chains, and one-block chains, which need a run each.
    for shape in [[200, 500], [100_000, 1]] {
        let index = index();
        fill(&index, 1, 1, shape);
        let full = settled(&index);
        assert_eq!(full.blocks, 100_000);
        index.remove_worker(WorkerId(1));
        let left = settled(&index);
        assert_eq!((left.distinct_blocks, left.runs, left.leaving), (0, 0, 0));
        assert!(
            left.bytes < 32 << 10,
            "{} of {} bytes for {shape:?}",
            left.bytes,
            full.bytes
        );
    }
}

#[test]
fn memory_shrinks_to_the_remaining_blocks_after_a_worker_is_removed() {
    let index = index();
    fill(&index, 1, 1, [100, 500]);
    fill(&index, 2, 2, [10, 100]);
    fill(&index, 1, 3, [50_000, 1]);
    let full = settled(&index);
    index.remove_worker(WorkerId(1));
    let left = settled(&index);
    assert_eq!((left.blocks, left.distinct_blocks), (1_000, 1_000));
    assert!(
        left.bytes * 8 < full.bytes,
        "{} of {} bytes",
        left.bytes,
        full.bytes
    );
    let ten: Vec<u32> = (0..100).flat_map(|block| [2, 7 << 12 | block]).collect();
    let mut found = Vec::new();
    index.matches(&mut query(&ten), &[WorkerId(2)], &mut found);
    assert_eq!(blocks(found[0]), [100; 3]);
    fill(&index, 2, 2, [20, 100]);
    assert_eq!(index.held_blocks(WorkerId(2)), 2_000, "it goes on from there");
}

#[test]
fn the_names_of_an_engine_that_hashes_otherwise_go_with_it() {
    let index = index();
    for worker in [1, 2] {
        for chain in 0..200 {
            let tokens: Vec<u32> = (0..100).flat_map(|block| [chain, block]).collect();
            let name = |block: u64| EngineBlockHash(u64::from(worker) << 40 | u64::from(chain) << 16 | block);
            let stored = StoredBlocks {
                hashes: (0..100).map(name).collect(),
                tokens,
                ..store("a", 0)
            };
            index.apply(holder(worker, 0), &BlockEvent::Stored(stored));
        }
    }
    let both = settled(&index);
    assert_eq!((both.blocks, both.distinct_blocks), (40_000, 20_000));
    index.remove_worker(WorkerId(2));
    let one = settled(&index);
    assert_eq!((one.blocks, one.distinct_blocks), (20_000, 20_000));
    assert!(
        one.bytes * 2 < both.bytes,
        "{} of {} bytes",
        one.bytes,
        both.bytes
    );
}

#[test]
fn ever_new_names_of_one_block_take_no_more_memory() {
    let index = index();
    let named = |name| {
        let stored = StoredBlocks {
            hashes: vec![EngineBlockHash(name)],
            ..store("a", 0)
        };
        index.apply(holder(1, 0), &BlockEvent::Stored(stored))
    };
    let stored: u64 = (0..100).map(|name| named(name).stored).sum();
    assert_eq!(stored, 17, "the shared name and 16 others");
    let bytes = index.stats().bytes;
    let ambiguous: u64 = (100..10_000).map(|name| named(name).ambiguous).sum();
    assert_eq!((ambiguous, index.stats().bytes), (9_900, bytes));
    let names = 0..10_000;
    let removed = BlockEvent::Removed(RemovedBlocks {
        hashes: names.map(EngineBlockHash).collect(),
        tier: None,
        group: 0,
    });
    let removed = index.apply(holder(1, 0), &removed);
    assert_eq!((removed.removed, removed.absent), (17, 10_000 - 17));
    assert_eq!(index.held_blocks(WorkerId(1)), 0, "no name is left");
}

#[test]
fn a_cleared_store_keeps_no_room_for_its_objects() {
    let index = index();
    let stored = |block| ObjectEvent::Stored {
        object: StoreObject {
            model: "m".into(),
            block: EngineBlockHash(block),
            shard: Shard::default(),
        },
        tier: Tier::Host,
    };
    let events: Vec<ObjectEvent> = (0..10_000).map(stored).collect();
    index.apply_objects(StoreId(1), &events);
    assert!(settled(&index).bytes > 10_000 * 32);
    index.apply_objects(StoreId(1), &[ObjectEvent::Cleared]);
    assert!(settled(&index).bytes < 4_096, "{} bytes", index.stats().bytes);
}
