//! Events of a store that several workers share (Mooncake RFC 1527), free of any wire format.
//!
//! A store has no tokens and no prefixes: it holds objects under keys, and an engine writes one object per block and
//! shard. The key's hash is the engine's name of the block, which joins the object to a prefix.

use std::sync::Arc;

use crate::block::{EngineBlockHash, Tier};

/// Names one store; never reused within one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub u32);

/// Part of a block that one object is. Absent parts of a key are 0. A block is complete with all its shards only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Shard {
    /// Tensor-parallel rank, or the attention head's.
    pub tensor: u16,
    /// Pipeline rank.
    pub pipeline: u16,
    /// Prefill context-parallel rank.
    pub prefill_context: u16,
    /// Decode context-parallel rank.
    pub decode_context: u16,
    /// KV-cache group.
    pub group: u16,
    /// Layer, where layers are stored apart.
    pub layer: u16,
    /// 0 where keys and values are one object or this is the keys', 1 for the values'.
    pub part: u8,
}

/// One object: one shard of one block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreObject {
    /// The model as the key spells it, with whatever prefix it has; empty where the key names none. Shared: one event
    /// may name many objects.
    pub model: Arc<str>,
    /// The block, as the engine that wrote it names it.
    pub block: EngineBlockHash,
    /// Part of the block.
    pub shard: Shard,
}

/// One change of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectEvent {
    /// The store holds a copy of the object.
    Stored {
        /// Added object.
        object: StoreObject,
        /// Host or disk: where in the store.
        tier: Tier,
    },
    /// A copy is gone.
    Removed {
        /// Removed object.
        object: StoreObject,
        /// Former tier; `None` means everywhere.
        tier: Option<Tier>,
    },
    /// The store is empty.
    Cleared,
}
