//! Shared by the tests: a small language for caches. A prompt is a string whose letters are blocks of two tokens, and
//! an engine's hash of a block is made of the whole string up to it, as a real engine's is.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::hash::{DefaultHasher, Hash, Hasher};

use kv_index::{Applied, Holder, IndexLimits, Prompt, SharedPrefixIndex, WorkerMatch};
use routing::{
    Attention, BlockEvent, DpRank, EngineBlockHash, ExtraKey, Lora, RemovedBlocks, StoredBlocks, Tier,
    WorkerId,
};

pub(crate) const BLOCK: u32 = 2;

pub(crate) fn index() -> SharedPrefixIndex {
    SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 })
}

pub(crate) fn holder(worker: u32, rank: u16) -> Holder {
    Holder {
        worker: WorkerId(worker),
        rank: DpRank(rank),
    }
}

pub(crate) fn tokens(prompt: &str) -> Vec<u32> {
    prompt.bytes().flat_map(|letter| [u32::from(letter), 1]).collect()
}

/// Returns the engine's hash of the last block of `prompt`.
pub(crate) fn engine_hash(prompt: &str) -> EngineBlockHash {
    let mut hasher = DefaultHasher::new();
    prompt.hash(&mut hasher);
    EngineBlockHash(hasher.finish())
}

/// Returns the store of `prompt` after its first `parent` letters.
pub(crate) fn store(prompt: &str, parent: usize) -> StoredBlocks {
    StoredBlocks {
        hashes: (parent..prompt.len())
            .map(|end| engine_hash(&prompt[..=end]))
            .collect(),
        parent: (parent > 0).then(|| engine_hash(&prompt[..parent])),
        tokens: tokens(&prompt[parent..]),
        block_size: BLOCK,
        tier: Tier::Device,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    }
}

pub(crate) fn stored(prompt: &str, parent: usize) -> BlockEvent {
    BlockEvent::Stored(store(prompt, parent))
}

pub(crate) fn stored_on(prompt: &str, tier: Tier) -> BlockEvent {
    BlockEvent::Stored(StoredBlocks {
        tier,
        ..store(prompt, 0)
    })
}

pub(crate) fn salted(prompt: &str, lora: Option<&str>, salt: Option<&str>) -> BlockEvent {
    let mut event = store(prompt, 0);
    event.lora = lora.map(|name| Lora::Name(name.into()));
    let of_lora = || lora.map(|name| ExtraKey::Text(name.into())).into_iter();
    event.extra_keys = event.hashes.iter().map(|_| of_lora().collect()).collect();
    event.extra_keys[0].extend(salt.map(|salt| ExtraKey::Text(salt.into())));
    // A real engine's hashes differ by adapter and salt too.
    let mark = format!("{lora:?}{salt:?}");
    event.hashes = (0..prompt.len())
        .map(|end| engine_hash(&format!("{mark}{}", &prompt[..=end])))
        .collect();
    BlockEvent::Stored(event)
}

/// Returns the removal of the last block of `prompt`.
pub(crate) fn removed(prompt: &str, tier: Option<Tier>) -> BlockEvent {
    BlockEvent::Removed(RemovedBlocks {
        hashes: vec![engine_hash(prompt)],
        tier,
        group: 0,
    })
}

pub(crate) fn query(tokens: &[u32]) -> Prompt<'_> {
    Prompt::new(tokens, None, None)
}

/// Returns the matched blocks (device, host, any) of one worker.
pub(crate) fn matched(index: &SharedPrefixIndex, worker: u32, prompt: &str) -> [u32; 3] {
    let tokens = tokens(prompt);
    let mut out = vec![WorkerMatch::default(); 7];
    index.matches(&mut query(&tokens), &[WorkerId(worker)], &mut out);
    assert_eq!(out.len(), 1);
    blocks(out[0])
}

pub(crate) fn blocks(found: WorkerMatch) -> [u32; 3] {
    [
        found.device_tokens / BLOCK,
        found.host_tokens / BLOCK,
        found.any_tokens / BLOCK,
    ]
}

/// Returns all-zero counts but for those that `change` sets.
pub(crate) fn counts(change: impl FnOnce(&mut Applied)) -> Applied {
    let mut counts = Applied::default();
    change(&mut counts);
    counts
}
