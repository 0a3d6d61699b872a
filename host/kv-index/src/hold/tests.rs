//! Tests of block names that publishers choose to be equal.

use routing::{Attention, BlockEvent, DpRank, RemovedBlocks, Tier, WorkerId};

use super::*;
use crate::count::IndexLimits;

const NAME: u64 = 7;

fn core() -> IndexCore {
    IndexCore::new(IndexLimits { max_blocks: 1 << 16 })
}

/// Stores one block with content of its own under the shared name.
fn store(core: &mut IndexCore, worker: u32, content: u32) -> Applied {
    let event = BlockEvent::Stored(StoredBlocks {
        hashes: vec![EngineBlockHash(NAME)],
        parent: None,
        tokens: vec![content],
        block_size: 1,
        tier: Tier::Device,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    });
    core.apply_part(holder(worker), &event, 0).0
}

fn remove(core: &mut IndexCore, worker: u32) -> Applied {
    let event = BlockEvent::Removed(RemovedBlocks {
        hashes: vec![EngineBlockHash(NAME)],
        tier: Some(Tier::Device),
        group: 0,
    });
    core.apply_part(holder(worker), &event, 0).0
}

fn holder(worker: u32) -> Holder {
    Holder {
        worker: WorkerId(worker),
        rank: DpRank(0),
    }
}

/// Returns the number of blocks found by the name.
fn named(core: &IndexCore) -> usize {
    let mut blocks = Vec::new();
    core.forest.find_named(NAME, |block| {
        blocks.push(block);
        None::<()>
    });
    blocks.sort_unstable();
    blocks.dedup();
    blocks.len()
}

#[test]
fn a_name_that_its_cache_gives_to_one_content_after_another_is_kept_by_the_latest() {
    let mut core = core();
    for content in 0..2_000 {
        assert_eq!(store(&mut core, 1, content).stored, 1);
        assert!(named(&core) <= 1, "after {content} others");
        assert_eq!(remove(&mut core, 1).removed, 1);
    }
}

#[test]
fn a_name_is_given_to_256_blocks_at_most() {
    let mut core = core();
    let workers = MOST_NAMESAKES as u32 + 40;
    let ambiguous: u64 = (0..workers)
        .map(|worker| store(&mut core, worker, worker).ambiguous)
        .sum();
    assert_eq!((ambiguous, named(&core)), (40, MOST_NAMESAKES));

    remove(&mut core, 0);
    let late = store(&mut core, workers, workers);
    assert_eq!((late.stored, late.ambiguous), (1, 0), "one has given the name up");
    assert_eq!(named(&core), MOST_NAMESAKES);
}
