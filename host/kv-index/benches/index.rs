//! The index against the plainest thing that could do the job: a standard map from chained hash to a list of workers.
//!
//! 128 workers hold the same chain of 2,048 blocks of 16 tokens; run with `cargo bench -p kv-index`.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use divan::{Bencher, black_box, counter::ItemsCount};
use kv_index::{Holder, IndexLimits, PrefixQuery, SharedPrefixIndex, WorkerMatch};
use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, StoredBlocks, Tier, WorkerId};

const WORKERS: u32 = 128;
const BLOCKS: usize = 2048;
const BLOCK_SIZE: usize = 16;

fn main() {
    divan::main();
}

fn holder(worker: u32) -> Holder {
    Holder {
        worker: WorkerId(worker),
        rank: DpRank(0),
    }
}

fn tokens() -> Vec<u32> {
    (0..(BLOCKS * BLOCK_SIZE) as u32)
        .map(|token| token.wrapping_mul(2_654_435_761) % 128_000)
        .collect()
}

fn hashes() -> Vec<EngineBlockHash> {
    (0..BLOCKS as u64)
        .map(|block| EngineBlockHash(block.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect()
}

fn stored() -> BlockEvent {
    BlockEvent::Stored(StoredBlocks {
        hashes: hashes(),
        parent: None,
        tokens: tokens(),
        block_size: BLOCK_SIZE as u32,
        tier: Tier::Device,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    })
}

/// Tail first, one hash an event: as vLLM evicts.
fn removals() -> Vec<BlockEvent> {
    let one = |hash| {
        BlockEvent::Removed(RemovedBlocks {
            hashes: vec![hash],
            tier: Some(Tier::Device),
            group: 0,
        })
    };
    hashes().into_iter().rev().map(one).collect()
}

fn empty() -> SharedPrefixIndex {
    SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 24 })
}

fn filled() -> SharedPrefixIndex {
    let index = empty();
    let event = stored();
    for worker in 0..WORKERS {
        index.apply(holder(worker), &event);
    }
    index
}

#[divan::bench]
fn query_all_workers(bencher: Bencher<'_, '_>) {
    let (index, tokens) = (filled(), tokens());
    let workers: Vec<WorkerId> = (0..WORKERS).map(WorkerId).collect();
    let query = PrefixQuery {
        tokens: &tokens,
        lora: None,
        cache_salt: None,
    };
    let mut out: Vec<WorkerMatch> = Vec::new();
    bencher.counter(ItemsCount::new(BLOCKS)).bench_local(|| {
        index.matches(black_box(&query), &workers, &mut out);
        out[0].device_tokens
    });
}

#[divan::bench]
fn query_of_an_unknown_prompt(bencher: Bencher<'_, '_>) {
    let (index, tokens) = (filled(), vec![7; BLOCKS * BLOCK_SIZE]);
    let workers: Vec<WorkerId> = (0..WORKERS).map(WorkerId).collect();
    let query = PrefixQuery {
        tokens: &tokens,
        lora: None,
        cache_salt: None,
    };
    let mut out = Vec::new();
    bencher.bench_local(|| index.matches(black_box(&query), &workers, &mut out));
}

#[divan::bench]
fn store_new_content(bencher: Bencher<'_, '_>) {
    let event = stored();
    bencher
        .counter(ItemsCount::new(BLOCKS))
        .with_inputs(empty)
        .bench_local_refs(|index| index.apply(holder(0), black_box(&event)));
}

#[divan::bench]
fn store_known_content_at_another_worker(bencher: Bencher<'_, '_>) {
    let (index, event) = (filled(), stored());
    bencher
        .counter(ItemsCount::new(BLOCKS))
        .with_inputs(|| index.remove_worker(WorkerId(0)))
        .bench_local_values(|_| index.apply(holder(0), black_box(&event)));
}

#[divan::bench]
fn remove_one_by_one(bencher: Bencher<'_, '_>) {
    let (index, event, removals) = (filled(), stored(), removals());
    bencher
        .counter(ItemsCount::new(BLOCKS))
        .with_inputs(|| index.apply(holder(0), &event))
        .bench_local_values(|_| {
            removals
                .iter()
                .map(|event| index.apply(holder(0), event).removed)
                .sum::<u64>()
        });
}

#[divan::bench]
fn clear_a_worker(bencher: Bencher<'_, '_>) {
    let (index, event) = (filled(), stored());
    bencher
        .with_inputs(|| index.apply(holder(0), &event))
        .bench_local_values(|_| index.remove_worker(WorkerId(0)));
}

/// The baseline: standard hasher, one list of workers a block, no tiers, no removal by engine hash.
#[derive(Default)]
struct PlainMap {
    holders: HashMap<u64, Vec<u32>>,
}

impl PlainMap {
    fn chain(tokens: &[u32]) -> impl Iterator<Item = u64> {
        tokens.chunks_exact(BLOCK_SIZE).scan(0_u64, |parent, block| {
            let mut hasher = DefaultHasher::new();
            (*parent, block).hash(&mut hasher);
            *parent = hasher.finish();
            Some(*parent)
        })
    }

    fn store(&mut self, worker: u32, tokens: &[u32]) {
        for hash in Self::chain(tokens) {
            let workers = self.holders.entry(hash).or_default();
            if !workers.contains(&worker) {
                workers.push(worker);
            }
        }
    }

    fn depths(&self, tokens: &[u32]) -> Vec<u32> {
        let mut depths = vec![0; WORKERS as usize];
        for (depth, hash) in (0..).zip(Self::chain(tokens)) {
            let Some(workers) = self.holders.get(&hash) else {
                break;
            };
            for &worker in workers.iter().filter(|&&worker| worker < WORKERS) {
                let reached = &mut depths[worker as usize];
                *reached += u32::from(*reached == depth);
            }
        }
        depths
    }
}

#[divan::bench]
fn plain_map_query_all_workers(bencher: Bencher<'_, '_>) {
    let tokens = tokens();
    let mut map = PlainMap::default();
    for worker in 0..WORKERS {
        map.store(worker, &tokens);
    }
    bencher
        .counter(ItemsCount::new(BLOCKS))
        .bench_local(|| map.depths(black_box(&tokens)));
}

#[divan::bench]
fn plain_map_store_new_content(bencher: Bencher<'_, '_>) {
    let tokens = tokens();
    bencher
        .counter(ItemsCount::new(BLOCKS))
        .with_inputs(PlainMap::default)
        .bench_local_refs(|map| map.store(0, black_box(&tokens)));
}
