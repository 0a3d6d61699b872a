//! What the index counts, and what bounds it. All counts are of blocks unless named otherwise.

use std::ops::AddAssign;

/// How large the index may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLimits {
    /// Different blocks kept, however many hold each: about 24 bytes each in long chains, up to 500 where none follows another.
    /// Beyond it the least used ones go, which costs hits and never makes one up. A store's objects count apart: as many
    /// blocks again for each store, at some 60 bytes.
    pub max_blocks: usize,
}

/// What became of the blocks of one event, or of all events so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// New at this holder, or on this tier of it.
    pub stored: u64,
    /// Stored before, with the same content on the same tier.
    pub known: u64,
    /// Gone from at least one tier.
    pub removed: u64,
    /// Gone because the holder was emptied.
    pub cleared: u64,
    /// Removals of blocks that were not held there.
    pub absent: u64,
    /// Not indexed: their parent was never announced, or is gone, so their content is not known.
    pub unknown_parent: u64,
    /// Not indexed: of a KV-cache group whose layers need something that is not known here.
    pub skipped_group: u64,
    /// Not indexed: of another block size or kind than the other blocks of the holder's group.
    pub other_block_size: u64,
    /// Not indexed: the holder used one engine hash for two contents, of which neither is trusted until it is cleared; or 256
    /// holders already use the hash for contents of their own.
    pub ambiguous: u64,
    /// Not indexed: [`IndexLimits::max_blocks`] is reached and everything is in use.
    pub over_limit: u64,
    /// Not indexed: token ids or extra keys do not fit the number of blocks.
    pub malformed: u64,
}

impl Applied {
    /// Each count with its field's name, as metrics spell it.
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

/// What became of a store's objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectsApplied {
    /// Copies of objects noted.
    pub stored: u64,
    /// Copies gone.
    pub removed: u64,
    /// Blocks gone because the store was emptied.
    pub cleared: u64,
    /// Not noted: as many blocks as the index may have, or more kinds of shards than it knows.
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

/// The index at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Different prefixes kept, including those that nobody holds and that are about to go: what
    /// [`IndexLimits::max_blocks`] bounds.
    pub distinct_blocks: usize,
    /// The unbranched chains they form.
    pub runs: usize,
    /// Blocks held, counted once per cache, tier and group.
    pub blocks: usize,
    /// Blocks expected at workers.
    pub expected: usize,
    /// Blocks of cleared caches and removed workers: in no answer any more, their memory not yet returned.
    pub leaving: usize,
    /// Caches (a worker's ranks) known.
    pub holders: usize,
    /// Blocks that stores have objects of.
    pub objects: usize,
    /// Memory taken, in bytes, but for a few dozen for each run.
    pub bytes: usize,
    /// Blocks forgotten because the bound was reached.
    pub evicted: u64,
    /// Everything that was ever applied.
    pub applied: Applied,
}
