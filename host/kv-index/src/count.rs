//! Counters and limits of the index. Counts are of blocks unless named otherwise.

use std::ops::AddAssign;

/// Blocks of an event or a prompt that are applied in one step.
pub(crate) const PART: usize = 64;

/// Limits of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLimits {
    /// Most different blocks, independent of the number of holders. A block takes about 23 bytes in long chains, up to
    /// 500 without successors. Beyond the limit the least used blocks are evicted: that costs hits, but never reports
    /// false ones. Objects of stores count separately: the same limit for each store, at about 60 bytes.
    pub max_blocks: usize,
}

/// Result of applying one event, or totals over all events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// New for this holder or tier.
    pub stored: u64,
    /// Stored before, with the same content on the same tier.
    pub known: u64,
    /// Removed from at least one tier.
    pub removed: u64,
    /// Removed because the holder was cleared.
    pub cleared: u64,
    /// Removals of blocks that were not held.
    pub absent: u64,
    /// Not indexed: the parent was never announced or is gone, so the content is unknown.
    pub unknown_parent: u64,
    /// Not indexed: the KV-cache group has layers with unknown requirements.
    pub skipped_group: u64,
    /// Not indexed: block size or kind differs from the other blocks of the holder's group.
    pub other_block_size: u64,
    /// Not indexed: the holder used one engine hash for two contents, and the hash is ambiguous until the holder is
    /// cleared; or 256 holders already use the hash for other contents; or the holder already uses 16 other hashes
    /// for the block.
    pub ambiguous: u64,
    /// Not indexed: [`IndexLimits::max_blocks`] is reached and all blocks are in use.
    pub over_limit: u64,
    /// Not indexed: token ids or extra keys do not match the number of blocks.
    pub malformed: u64,
}

impl Applied {
    /// Returns each count with its field name, as used in metrics.
    #[must_use]
    pub fn named(self) -> [(&'static str, u64); 11] {
        [
            ("stored", self.stored),
            ("known", self.known),
            ("removed", self.removed),
            ("cleared", self.cleared),
            ("absent", self.absent),
            ("unknown-parent", self.unknown_parent),
            ("skipped-group", self.skipped_group),
            ("other-block-size", self.other_block_size),
            ("ambiguous", self.ambiguous),
            ("over-limit", self.over_limit),
            ("malformed", self.malformed),
        ]
    }
}

impl AddAssign for Applied {
    fn add_assign(&mut self, other: Self) {
        self.stored += other.stored;
        self.known += other.known;
        self.removed += other.removed;
        self.cleared += other.cleared;
        self.absent += other.absent;
        self.unknown_parent += other.unknown_parent;
        self.skipped_group += other.skipped_group;
        self.other_block_size += other.other_block_size;
        self.ambiguous += other.ambiguous;
        self.over_limit += other.over_limit;
        self.malformed += other.malformed;
    }
}

/// Result of applying store events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectsApplied {
    /// Copies of objects added.
    pub stored: u64,
    /// Copies removed.
    pub removed: u64,
    /// Blocks removed because the store was cleared.
    pub cleared: u64,
    /// Not added: the block limit or the limit of shard kinds is reached.
    pub over_limit: u64,
}

impl AddAssign for ObjectsApplied {
    fn add_assign(&mut self, other: Self) {
        self.stored += other.stored;
        self.removed += other.removed;
        self.cleared += other.cleared;
        self.over_limit += other.over_limit;
    }
}

/// State of the index at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Different prefixes kept, including unused ones that are about to be reclaimed. [`IndexLimits::max_blocks`]
    /// limits this number.
    pub distinct_blocks: usize,
    /// Number of unbranched chains that they form.
    pub runs: usize,
    /// Blocks held, counted per cache, tier and group.
    pub blocks: usize,
    /// Blocks predicted at workers.
    pub expected: usize,
    /// Blocks of cleared caches and removed workers: in no answer, but their memory is not freed yet.
    pub leaving: usize,
    /// Number of known caches (ranks of workers).
    pub holders: usize,
    /// Blocks with objects in stores.
    pub objects: usize,
    /// Memory in bytes, except a few dozen bytes per run.
    pub bytes: usize,
    /// Blocks evicted because the limit was reached.
    pub evicted: u64,
    /// Totals of all applied events.
    pub applied: Applied,
}
