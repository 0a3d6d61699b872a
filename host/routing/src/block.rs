//! Events of engines about their KV-cache blocks, free of any wire format.

use std::sync::Arc;

/// Storage tier of a block, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The accelerator's memory.
    Device,
    /// The worker's host memory.
    Host,
    /// The worker's disk.
    Disk,
    /// Storage shared by several workers.
    Shared,
}

/// A block's identity as the engine announced it. Engines hash in ways of their own (and with seeds of their
/// own), so it means something only together with the worker it came from. Longer digests are reduced to
/// their last 8 bytes, big endian, as vLLM itself does for its integer form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EngineBlockHash(pub u64);

/// The adapter a block was computed with: blocks of different adapters never match each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lora {
    /// Name, as in requests. Shared: one event may become many.
    Name(Arc<str>),
    /// Number by the engine, where it gives no name.
    Id(i64),
}

/// Input of a block's content other than its tokens: cache salt, multimodal item.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ExtraKey {
    /// Text, such as a `cache_salt` or a multimodal hash.
    Text(Box<str>),
    /// A number, such as a multimodal offset.
    Int(i64),
    /// Raw bytes.
    Bytes(Box<[u8]>),
}

/// Attention of one KV-cache group: the part of a prefix that its layers need to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Attention {
    /// Every block of it (full attention, MLA).
    #[default]
    Full,
    /// The blocks of its last `tokens` tokens (sliding window, chunked local attention).
    Window {
        /// Size of the window in tokens, at least 1.
        tokens: u32,
    },
    /// Last block, which stands for all before it (state-space layers).
    State,
    /// Kind unknown to this version: such a group's blocks are counted and not indexed.
    Unknown,
}

/// Consecutive blocks of one chain that a cache now holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlocks {
    /// One hash a block, in chain order.
    pub hashes: Vec<EngineBlockHash>,
    /// Block before the first of `hashes`. `None` if that one starts a prompt.
    pub parent: Option<EngineBlockHash>,
    /// `hashes.len() * block_size` token ids.
    pub tokens: Vec<u32>,
    /// Tokens a block.
    pub block_size: u32,
    /// Storage tier of the blocks.
    pub tier: Tier,
    /// The adapter they were computed with; none for the base model.
    pub lora: Option<Lora>,
    /// Empty, or one list a block.
    pub extra_keys: Vec<Vec<ExtraKey>>,
    /// The engine's KV-cache group (hybrid models have several); 0 where there is one.
    pub group: u32,
    /// Attention of that group.
    pub attention: Attention,
}

/// Blocks that a cache no longer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedBlocks {
    /// One hash a block, in no particular order (engines evict tail first).
    pub hashes: Vec<EngineBlockHash>,
    /// The tier they left; none means every tier.
    pub tier: Option<Tier>,
    /// As in [`StoredBlocks::group`].
    pub group: u32,
}

/// One change of one worker's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockEvent {
    /// Blocks were stored.
    Stored(StoredBlocks),
    /// Blocks were removed.
    Removed(RemovedBlocks),
    /// The whole cache of that worker (and rank) is empty now.
    Cleared,
}
