//! Single operations while everything fits the processor's caches: for seeing what a change does to the code itself.
//! `fleet` measures what counts. `cargo bench -p kv-index --bench index`.
//!
//! 128 workers hold the same chain of 2,048 blocks of 16 tokens.

use divan::{Bencher, black_box, counter::ItemsCount};
use kv_index::{Holder, IndexLimits, Prompt, SharedPrefixIndex, WorkerMatch};
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

/// Returns removals tail first, one hash an event: as vLLM evicts.
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

fn workers() -> Vec<WorkerId> {
    (0..WORKERS).map(WorkerId).collect()
}

#[divan::bench]
fn query_all_workers(bencher: Bencher<'_, '_>) {
    let (index, tokens, workers) = (filled(), tokens(), workers());
    let mut out: Vec<WorkerMatch> = Vec::new();
    let mut prompt = Prompt::new(&tokens, None, None);
    bencher.counter(ItemsCount::new(BLOCKS)).bench_local(|| {
        index.matches(black_box(&mut prompt), &workers, &mut out);
        out[0].device_tokens
    });
}

#[divan::bench]
fn query_all_workers_from_tokens(bencher: Bencher<'_, '_>) {
    let (index, tokens, workers) = (filled(), tokens(), workers());
    let mut out: Vec<WorkerMatch> = Vec::new();
    bencher.counter(ItemsCount::new(BLOCKS)).bench_local(|| {
        index.matches(
            &mut Prompt::new(black_box(&tokens), None, None),
            &workers,
            &mut out,
        );
        out[0].device_tokens
    });
}

#[divan::bench]
fn query_of_an_unknown_prompt(bencher: Bencher<'_, '_>) {
    let (index, tokens, workers) = (filled(), vec![7; BLOCKS * BLOCK_SIZE], workers());
    let mut out = Vec::new();
    bencher.bench_local(|| {
        index.matches(
            &mut Prompt::new(black_box(&tokens), None, None),
            &workers,
            &mut out,
        )
    });
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

/// Block names as a publisher may choose them.
#[derive(Debug, Clone, Copy)]
enum Names {
    Random,
    /// Sums of two Fibonacci numbers' multiples: one multiplication by 2^64 over the golden ratio leaves them side by
    /// side.
    Chosen,
}

/// Returns blocks of one token, none of which follows another.
fn apart(names: Names) -> Vec<BlockEvent> {
    const SIDE: u64 = 256;
    let name = |at: u64| match names {
        Names::Random => at
            .wrapping_mul(0xd6e8_feb8_6659_fd93)
            .rotate_left(32)
            .wrapping_mul(0xd6e8_feb8_6659_fd93),
        Names::Chosen => 0x517c_c1b7_2722_0a95 ^ (at / SIDE * 102_334_155 + at % SIDE * 165_580_141),
    };
    let event = |at: u64| {
        BlockEvent::Stored(StoredBlocks {
            hashes: vec![EngineBlockHash(name(at))],
            parent: None,
            tokens: vec![at as u32],
            block_size: 1,
            tier: Tier::Device,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        })
    };
    (0..SIDE * SIDE).map(event).collect()
}

#[divan::bench(args = [Names::Random, Names::Chosen], sample_count = 10)]
fn store_blocks_named_by_the_publisher(bencher: Bencher<'_, '_>, names: Names) {
    let events = apart(names);
    bencher
        .counter(ItemsCount::new(events.len()))
        .with_inputs(empty)
        .bench_local_refs(|index| {
            for event in &events {
                index.apply(holder(0), black_box(event));
            }
        });
}
