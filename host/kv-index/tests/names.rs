//! Questions by the names that engines give to blocks, of engines that hash in different ways.

mod chains;

use chains::*;
use kv_index::{Prompt, RankMatch, SharedPrefixIndex};
use routing::{BlockEvent, EngineBlockHash, StoredBlocks, WorkerId};

/// Returns the names that an engine with this seed gives to the blocks of a prompt.
fn names(seed: &str, prompt: &str) -> Vec<u64> {
    let ends = 1..=prompt.len();
    ends.map(|end| engine_hash(&format!("{seed}:{}", &prompt[..end])).0)
        .collect()
}

/// Returns the store by an engine with this seed of a prompt from block `from` on.
fn seeded(seed: &str, prompt: &str, from: usize) -> BlockEvent {
    let names: Vec<EngineBlockHash> = names(seed, prompt).into_iter().map(EngineBlockHash).collect();
    BlockEvent::Stored(StoredBlocks {
        parent: from.checked_sub(1).map(|parent| names[parent]),
        hashes: names[from..].to_vec(),
        ..store(prompt, from)
    })
}

/// Returns the blocks on the device of each worker, by these names.
fn held(index: &SharedPrefixIndex, names: &[u64], namers: &[u32], workers: &[u32]) -> Vec<u32> {
    let [namers, workers] =
        [namers, workers].map(|ids| ids.iter().copied().map(WorkerId).collect::<Vec<_>>());
    let mut out: Vec<RankMatch> = Vec::new();
    index.rank_matches_by_engine_hash(names, &namers, &workers, &mut out);
    out.iter().map(|rank| blocks(rank.found)[0]).collect()
}

#[test]
fn the_names_of_either_engine_find_all_who_hold_the_content() {
    let index = index();
    index.apply(holder(1, 0), &seeded("one", "abcd", 0));
    index.apply(holder(2, 0), &seeded("two", "abc", 0));
    for seed in ["one", "two"] {
        let names = names(seed, "abc");
        assert_eq!(
            held(&index, &names, &[1, 2], &[1, 2]),
            [3, 3],
            "by the names of {seed}"
        );
    }
    assert_eq!(held(&index, &names("one", "abcd"), &[1, 2], &[1, 2]), [4, 3]);
    assert_eq!(
        held(&index, &names("two", "abc"), &[1, 2], &[1]),
        [3],
        "the queried caches need not be those that name blocks"
    );
    assert_eq!(held(&index, &names("none", "abc"), &[1, 2], &[1, 2]), [0, 0]);
}

#[test]
fn one_engines_names_are_followed_through_blocks_that_either_stored_first() {
    let index = index();
    index.apply(holder(1, 0), &seeded("one", "ab", 0));
    index.apply(holder(2, 0), &seeded("two", "abcd", 0));
    index.apply(holder(1, 0), &seeded("one", "abcd", 2));
    index.apply(holder(1, 0), &seeded("one", "abxy", 2));
    index.apply(holder(2, 0), &seeded("two", "abxyz", 2));
    for seed in ["one", "two"] {
        let by_names = |prompt| held(&index, &names(seed, prompt), &[1, 2], &[1, 2]);
        assert_eq!(by_names("abcd"), [4, 4], "{seed}");
        assert_eq!(by_names("abxy"), [4, 4], "{seed}");
        assert_eq!(by_names("abq"), [2, 2], "{seed}");
    }
    assert_eq!(held(&index, &names("two", "abxyz"), &[1, 2], &[1, 2]), [4, 5]);
}

#[test]
fn a_name_leads_nowhere_once_its_engine_has_dropped_the_block() {
    let index = index();
    index.apply(holder(1, 0), &seeded("one", "ab", 0));
    index.apply(holder(2, 0), &seeded("two", "ab", 0));
    let two = names("two", "ab");
    index.apply(
        holder(2, 0),
        &BlockEvent::Removed(routing::RemovedBlocks {
            hashes: vec![EngineBlockHash(two[1])],
            tier: None,
            group: 0,
        }),
    );
    assert_eq!(held(&index, &two, &[1, 2], &[1, 2]), [1, 1]);
    assert_eq!(held(&index, &names("one", "ab"), &[1, 2], &[1, 2]), [2, 1]);
    index.remove_worker(WorkerId(2));
    assert_eq!(held(&index, &two, &[1, 2], &[1]), [0]);
}

#[test]
fn a_hash_from_the_middle_of_a_chain_is_no_prefix() {
    let index = index();
    index.apply(holder(1, 0), &seeded("one", "abcd", 0));
    index.apply(holder(1, 0), &seeded("one", "abxy", 2));
    let middle = &names("one", "abxy")[2..];
    assert_eq!(held(&index, middle, &[1], &[1]), [0]);
    let tokens = tokens("abxy");
    let hashes = Prompt::new(&tokens[..], None, None).hashes(BLOCK, 4).to_vec();
    let mut out = Vec::new();
    index.rank_matches_by_sequence_hash(&hashes[2..], BLOCK, &[WorkerId(1)], &mut out);
    assert_eq!(blocks(out[0].found), [0; 3]);
    index.rank_matches_by_sequence_hash(&hashes, BLOCK, &[WorkerId(1)], &mut out);
    assert_eq!(blocks(out[0].found), [4; 3]);
}
