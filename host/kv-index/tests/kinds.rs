//! Test cases one by one: namespaces, groups, block sizes, events that do not fit, too little room.

mod chains;

use chains::*;
use kv_index::{IndexLimits, Prompt, SEQUENCE_HASH_SEED, SharedPrefixIndex};
use routing::{Attention, BlockEvent, ExtraKey, Lora, StoredBlocks, Tier, WorkerId};

#[test]
fn keeps_adapters_and_salts_apart() {
    let index = index();
    let cases = [
        (None, None),
        (Some("ad"), None),
        (Some("ad2"), None),
        (None, Some("ad")),
        (Some("ad"), Some("ad")),
    ];
    let tokens = tokens("abc");
    for (worker, &(lora, salt)) in (0..).zip(&cases) {
        index.apply(holder(worker, 0), &salted("abc", lora, salt));
    }
    for (queried, &(lora, cache_salt)) in (0..).zip(&cases) {
        let mut out = Vec::new();
        let workers: Vec<WorkerId> = (0..5).map(WorkerId).collect();
        index.matches(&mut Prompt::new(&tokens, lora, cache_salt), &workers, &mut out);
        let found: Vec<u32> = out.iter().map(|&found| blocks(found)[0]).collect();
        let expected: Vec<u32> = (0..5)
            .map(|worker| if worker == queried { 3 } else { 0 })
            .collect();
        assert_eq!(found, expected, "lora {lora:?} salt {cache_salt:?}");
    }
}

#[test]
fn an_adapter_known_by_number_only_is_never_taken_for_the_base_model() {
    let index = index();
    let numbered = StoredBlocks {
        lora: Some(Lora::Id(1)),
        ..store("a", 0)
    };
    index.apply(holder(1, 0), &BlockEvent::Stored(numbered));
    assert_eq!(matched(&index, 1, "a"), [0; 3]);
}

#[test]
fn blocks_with_an_image_do_not_match_the_same_tokens_without() {
    let index = index();
    let mut event = store("ab", 0);
    event.extra_keys = vec![vec![], vec![ExtraKey::Text("image".into()), ExtraKey::Int(0)]];
    index.apply(holder(1, 0), &BlockEvent::Stored(event));
    assert_eq!(matched(&index, 1, "ab"), [1; 3]);
}

#[test]
fn blocks_of_layers_that_no_one_knows_here_are_not_indexed() {
    let index = index();
    index.apply(holder(1, 0), &stored("a", 0));
    for group in [0, 1] {
        let unknown = StoredBlocks {
            group,
            attention: Attention::Unknown,
            ..store("ab", 0)
        };
        let applied = index.apply(holder(1, 0), &BlockEvent::Stored(unknown));
        assert_eq!(applied, counts(|counts| counts.skipped_group = 2));
    }
    assert_eq!(matched(&index, 1, "ab"), [1; 3]);
}

#[test]
fn a_block_shorter_than_its_groups_others_is_a_partial_one_whichever_comes_first() {
    let index = index();
    let wide = StoredBlocks {
        hashes: vec![engine_hash("wide")],
        block_size: 2 * BLOCK,
        ..store("ab", 0)
    };
    let wide = BlockEvent::Stored(wide);
    let narrow = |holder| index.apply(holder, &stored("a", 0));
    index.apply(holder(1, 0), &wide);
    assert_eq!(narrow(holder(1, 0)), counts(|counts| counts.other_block_size = 1));
    narrow(holder(2, 0));
    assert_eq!(
        index.apply(holder(2, 0), &wide),
        counts(|counts| (counts.stored, counts.cleared) = (1, 1))
    );
    for worker in [1, 2] {
        assert_eq!(matched(&index, worker, "ab"), [2; 3], "one block of four tokens");
        assert_eq!(matched(&index, worker, "a"), [0; 3]);
    }
}

/// LMCache's chunks, as vLLM's connector passes them on: one block of the whole chunk in host memory.
fn chunk(prompt: &str) -> BlockEvent {
    BlockEvent::Stored(StoredBlocks {
        hashes: vec![engine_hash("chunk")],
        block_size: BLOCK * prompt.len() as u32,
        tier: Tier::Host,
        ..store(prompt, 0)
    })
}

#[test]
fn a_connectors_longer_blocks_on_another_tier_leave_the_engines_own_whichever_come_first() {
    let index = index();
    let own = |holder| index.apply(holder, &stored("abc", 0));
    own(holder(1, 0));
    for prompt in ["ab", "abc"] {
        assert_eq!(
            index.apply(holder(1, 0), &chunk(prompt)),
            counts(|counts| counts.other_block_size = 1)
        );
    }
    assert_eq!(
        index.apply(holder(2, 0), &chunk("ab")),
        counts(|counts| counts.stored = 1)
    );
    assert_eq!(
        own(holder(2, 0)),
        counts(|counts| (counts.stored, counts.cleared) = (3, 1)),
        "the device decides"
    );
    index.apply(holder(2, 0), &chunk("ab"));
    for worker in [1, 2] {
        assert_eq!(matched(&index, worker, "abc"), [3; 3]);
    }
    index.apply(holder(1, 0), &removed("a", None));
    index.apply(holder(1, 0), &removed("ab", None));
    index.apply(holder(1, 0), &removed("abc", None));
    index.apply(holder(1, 0), &chunk("ab"));
    assert_eq!(own(holder(1, 0)).stored, 3, "an empty device decides as well");
}

#[test]
fn workers_of_different_block_sizes_are_queried_together() {
    let index = index();
    index.apply(holder(1, 0), &stored("abc", 0));
    let wide = StoredBlocks {
        hashes: vec![engine_hash("wide")],
        block_size: 4,
        ..store("ab", 0)
    };
    index.apply(holder(2, 0), &BlockEvent::Stored(wide));
    let single = StoredBlocks {
        block_size: 1,
        hashes: (0..6).map(|n| engine_hash(&n.to_string())).collect(),
        ..store("abc", 0)
    };
    index.apply(holder(3, 0), &BlockEvent::Stored(single));
    let mut out = Vec::new();
    index.matches(&mut query(&tokens("abc")), &[1, 2, 3].map(WorkerId), &mut out);
    assert_eq!(
        out.iter().map(|found| found.device_tokens).collect::<Vec<_>>(),
        [6, 4, 6]
    );
}

#[test]
fn beyond_the_bound_it_forgets_what_no_one_requests_and_never_lies() {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 40 });
    let alphabet = "abcdefghijklmnopqrstuvwxyz";
    index.apply(holder(1, 0), &stored(alphabet, 0));
    let other = alphabet.to_uppercase();
    let stored_blocks = index.apply(holder(2, 0), &stored(&other, 0)).stored;
    let stats = index.stats();
    assert!(stats.distinct_blocks <= 40, "{stats:?}");
    assert!(stats.evicted > 0 && stored_blocks > 0, "{stats:?}");
    for (worker, prompt) in [(1, alphabet), (2, &*other)] {
        let held = index.held_blocks(WorkerId(worker)) as u32;
        assert!(matched(&index, worker, prompt)[0] <= held);
    }
    for worker in [1, 2] {
        index.remove_worker(WorkerId(worker));
    }
    while index.gc_step() {}
    assert_eq!(
        index.apply(holder(2, 0), &stored(alphabet, 0)).stored,
        26,
        "what left made room"
    );
    assert_eq!(matched(&index, 2, alphabet), [26; 3]);
}

#[test]
fn a_block_held_by_many_counts_once_against_the_bound() {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 3 });
    for worker in 0..100 {
        assert_eq!(index.apply(holder(worker, 0), &stored("abc", 0)).stored, 3);
    }
    assert_eq!((index.stats().distinct_blocks, index.stats().blocks), (3, 300));
}

#[test]
fn events_that_do_not_fit_themselves_are_counted() {
    let index = index();
    let short = StoredBlocks {
        tokens: vec![1],
        ..store("ab", 0)
    };
    let no_size = StoredBlocks {
        block_size: 0,
        tokens: vec![],
        ..store("ab", 0)
    };
    let keys = StoredBlocks {
        extra_keys: vec![vec![]],
        ..store("ab", 0)
    };
    for event in [short, no_size, keys] {
        assert_eq!(
            index.apply(holder(1, 0), &BlockEvent::Stored(event)),
            counts(|counts| counts.malformed = 2)
        );
    }
    assert_eq!(index.stats().applied.malformed, 6);
    assert_eq!(index.stats().holders, 0);
}

/// Returns the rolling hash that Mooncake's RFC 1527 recommends, written down a second time.
fn sequence_hashes(prompt: &str) -> Vec<u64> {
    let hash = |bytes: &[u8]| xxhash_rust::xxh3::xxh3_64_with_seed(bytes, SEQUENCE_HASH_SEED);
    let mut sequence: Option<u64> = None;
    let blocks = tokens(prompt);
    let blocks = blocks.chunks_exact(BLOCK as usize).map(|block| {
        let local = hash(
            &block
                .iter()
                .flat_map(|token| token.to_le_bytes())
                .collect::<Vec<u8>>(),
        );
        let next = sequence.map_or(local, |before| {
            hash(&[before.to_le_bytes(), local.to_le_bytes()].concat())
        });
        sequence = Some(next);
        next
    });
    blocks.collect()
}

#[test]
fn a_prompt_is_found_by_its_tokens_its_sequence_hashes_and_its_engines_names_alike() {
    let index = index();
    index.apply(holder(1, 0), &stored("abcd", 0));
    index.apply(holder(2, 0), &stored("abx", 0));
    index.apply(holder(2, 1), &stored("a", 0));
    let workers = [1, 2].map(WorkerId);
    let names: Vec<u64> = (1..=5).map(|end| engine_hash(&"abcde"[..end]).0).collect();
    let (mut by_tokens, mut by_hash, mut by_name) = (Vec::new(), Vec::new(), Vec::new());
    index.rank_matches(&mut query(&tokens("abcde")), &workers, &mut by_tokens);
    index.rank_matches_by_sequence_hash(&sequence_hashes("abcde"), BLOCK, &workers, &mut by_hash);
    index.rank_matches_by_engine_hash(&names, &workers, &workers, &mut by_name);
    let depths: Vec<u32> = by_tokens.iter().map(|rank| blocks(rank.found)[0]).collect();
    assert_eq!(depths, [4, 2, 1]);
    assert_eq!(by_hash, by_tokens);
    assert_eq!(by_name, by_tokens);
    index.rank_matches_by_sequence_hash(&sequence_hashes("abcde"), BLOCK + 1, &workers, &mut by_hash);
    assert!(
        by_hash.iter().all(|rank| rank.found.any_tokens == 0),
        "of another block size"
    );
}
