//! Stores that several workers share: what their objects add to an answer, and what they must not.

mod chains;

use chains::*;
use kv_index::SharedPrefixIndex;
use routing::{EngineBlockHash, ObjectEvent, Shard, StoreId, StoreObject, StoredBlocks, Tier, WorkerId};

const STORE: StoreId = StoreId(1);

fn object(block: EngineBlockHash, tensor: u16) -> StoreObject {
    StoreObject {
        model: "model".into(),
        block,
        shard: Shard {
            tensor,
            ..Shard::default()
        },
    }
}

fn put(block: EngineBlockHash, tensor: u16) -> ObjectEvent {
    ObjectEvent::Stored {
        object: object(block, tensor),
        tier: Tier::Host,
    }
}

fn gone(block: EngineBlockHash, tensor: u16) -> ObjectEvent {
    ObjectEvent::Removed {
        object: object(block, tensor),
        tier: None,
    }
}

/// Returns an index where worker 1 had `abc` once and shares the store with worker 2.
fn bound(shards: Option<u32>) -> SharedPrefixIndex {
    let index = index();
    index.bind_store(STORE, shards, &[1, 2].map(WorkerId));
    index.apply(holder(1, 0), &stored("abc", 0));
    index
}

fn put_all(index: &SharedPrefixIndex, prompt: &str) {
    for end in 1..=prompt.len() {
        index.apply_objects(STORE, &[put(engine_hash(&prompt[..end]), 0)]);
    }
}

#[test]
fn blocks_of_a_store_continue_the_prefixes_of_every_bound_worker() {
    let index = bound(Some(1));
    index.apply(holder(2, 0), &stored("a", 0));
    index.apply(holder(3, 0), &stored("a", 0));
    put_all(&index, "abc");
    assert_eq!(matched(&index, 1, "abc"), [3; 3]);
    assert_eq!(matched(&index, 2, "abc"), [1, 1, 3]);
    assert_eq!(matched(&index, 3, "abc"), [1; 3], "it does not share the store");
    index.apply_objects(STORE, &[gone(engine_hash("ab"), 0)]);
    assert_eq!(matched(&index, 2, "abc"), [1; 3]);
    index.apply_objects(STORE, &[put(engine_hash("ab"), 0)]);
    index.apply_objects(STORE, &[ObjectEvent::Cleared]);
    assert_eq!(matched(&index, 2, "abc"), [1; 3]);
}

#[test]
fn outlives_the_worker_that_stored_it_and_waits_for_a_name() {
    let index = index();
    index.bind_store(STORE, Some(1), &[1, 2].map(WorkerId));
    put_all(&index, "ab");
    index.apply(holder(2, 0), &stored("x", 0));
    assert_eq!(
        matched(&index, 2, "ab"),
        [0; 3],
        "no engine has published the blocks of these names yet"
    );
    index.apply(holder(1, 0), &stored("ab", 0));
    assert_eq!(matched(&index, 2, "ab"), [0, 0, 2]);
    index.clear(holder(1, 0));
    while index.gc_step() {}
    assert_eq!(matched(&index, 2, "ab"), [0, 0, 2]);
    index.clear_store(STORE);
    assert_eq!(matched(&index, 2, "ab"), [0; 3]);
}

#[test]
fn a_block_counts_with_all_its_shards_only() {
    let index = bound(Some(2));
    index.clear(holder(1, 0));
    index.apply(holder(1, 0), &stored("a", 0));
    index.apply(holder(2, 0), &stored("x", 0));
    let a = engine_hash("a");
    index.apply_objects(STORE, &[put(a, 0)]);
    index.apply_objects(STORE, &[put(a, 0)]);
    assert_eq!(matched(&index, 2, "a"), [0; 3]);
    index.apply_objects(STORE, &[put(a, 1)]);
    assert_eq!(matched(&index, 2, "a"), [0, 0, 1]);
    index.apply_objects(STORE, &[gone(a, 0)]);
    assert_eq!(matched(&index, 2, "a"), [0; 3]);
}

#[test]
fn without_a_number_of_shards_a_block_needs_as_many_kinds_as_were_ever_seen() {
    let index = bound(None);
    index.apply(holder(2, 0), &stored("x", 0));
    let [a, b] = ["a", "ab"].map(engine_hash);
    index.apply_objects(STORE, &[put(a, 0), put(b, 0)]);
    assert_eq!(matched(&index, 2, "abc"), [0, 0, 2]);
    index.apply_objects(STORE, &[put(b, 1)]);
    assert_eq!(
        matched(&index, 2, "abc"),
        [0; 3],
        "there are two kinds, and of `a` only one is there"
    );
    index.apply_objects(STORE, &[put(a, 1)]);
    assert_eq!(matched(&index, 2, "abc"), [0, 0, 2]);
}

#[test]
fn a_cleared_store_forgets_the_kinds_of_its_shards() {
    for by_event in [true, false] {
        let index = bound(None);
        index.apply(holder(2, 0), &stored("x", 0));
        let [a, b] = ["a", "ab"].map(engine_hash);
        index.apply_objects(STORE, &[put(a, 0), put(a, 1), put(b, 0), put(b, 1)]);
        assert_eq!(matched(&index, 2, "abc"), [0, 0, 2]);
        if by_event {
            index.apply_objects(STORE, &[ObjectEvent::Cleared]);
        } else {
            index.clear_store(STORE);
        }
        index.apply_objects(STORE, &[put(a, 2), put(b, 2)]);
        assert_eq!(
            matched(&index, 2, "abc"),
            [0, 0, 2],
            "each rank has whole blocks now"
        );
    }
}

#[test]
fn objects_are_joined_again_a_few_at_a_time_and_only_those_that_are_left() {
    let prompt: String = ('a'..='z').cycle().take(600).collect();
    let index = index();
    let workers = [1, 2].map(WorkerId);
    index.bind_store(STORE, Some(2), &workers);
    index.apply(holder(1, 0), &stored(&prompt, 0));
    index.apply(holder(2, 0), &stored("x", 0));
    put_all(&index, &prompt);
    index.bind_store(STORE, Some(1), &workers);
    index.apply_objects(STORE, &[gone(engine_hash(&prompt[..300]), 0)]);
    let held = || matched(&index, 2, &prompt)[2];
    let mut steps = 0;
    while index.gc_step() {
        assert!([0, 299].contains(&held()), "the first objects come last");
        steps += 1;
    }
    assert!(steps > 5, "{steps} steps for 600 objects");
    assert_eq!(held(), 299);
    index.apply_objects(STORE, &[put(engine_hash(&prompt[..300]), 0)]);
    assert_eq!(held(), 600);
}

/// Engines that count their blocks from 1 give one name to many contents. A store's objects are those of its own
/// workers.
#[test]
fn a_name_means_what_the_stores_own_workers_mean_by_it() {
    for order in [[1, 3], [3, 1]] {
        let index = index();
        index.bind_store(STORE, Some(1), &[1, 2].map(WorkerId));
        index.apply(holder(2, 0), &stored("x", 0));
        for worker in order {
            let named = StoredBlocks {
                hashes: vec![EngineBlockHash(7)],
                ..store(if worker == 1 { "a" } else { "b" }, 0)
            };
            index.apply(holder(worker, 0), &routing::BlockEvent::Stored(named));
        }
        index.apply_objects(STORE, &[put(EngineBlockHash(7), 0)]);
        assert_eq!(
            matched(&index, 2, "b"),
            [0; 3],
            "worker 3 does not share the store, {order:?}"
        );
    }
}

#[test]
fn a_bare_number_beside_a_models_objects_changes_nothing() {
    let [a, number] = [engine_hash("a"), EngineBlockHash(12_345)];
    let bare = ObjectEvent::Stored {
        object: StoreObject {
            model: "".into(),
            ..object(number, 0)
        },
        tier: Tier::Host,
    };
    for events in [[put(a, 0), bare.clone()], [bare, put(a, 0)]] {
        let index = bound(Some(1));
        index.apply(holder(2, 0), &stored("x", 0));
        index.apply_objects(STORE, &events);
        assert_eq!(matched(&index, 2, "a"), [0, 0, 1]);
        assert!(!index.is_ambiguous(STORE));
    }
}

#[test]
fn objects_of_two_models_are_reported_as_ambiguous_until_the_store_is_cleared() {
    let index = bound(Some(1));
    let foreign = StoreObject {
        model: "other".into(),
        ..object(engine_hash("b"), 0)
    };
    let foreign = ObjectEvent::Stored {
        object: foreign,
        tier: Tier::Host,
    };
    index.apply_objects(STORE, &[put(engine_hash("a"), 0), foreign]);
    assert!(index.is_ambiguous(STORE));
    index.clear_store(STORE);
    assert!(!index.is_ambiguous(STORE));
}
