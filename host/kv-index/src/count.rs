//! What the index counts, and what bounds it. All counts are of blocks unless named otherwise.

use std::ops::AddAssign;

/// How large the index may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexLimits {
    /// Blocks held, counted once per holder. Beyond it new blocks are not indexed, only [counted](Applied::over_limit):
    /// the router then misses hits, and never sees a wrong one. About 100 to 200 bytes each.
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
    /// Not indexed: of a KV-cache group whose blocks do not stand for a whole prefix, or of a second group.
    pub skipped_group: u64,
    /// Not indexed: of another block size than the holder's other blocks.
    pub other_block_size: u64,
    /// Not indexed: the holder used one engine hash for two contents. Neither is trusted until it is cleared.
    pub ambiguous: u64,
    /// Not indexed: [`IndexLimits::max_blocks`] is reached.
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

/// The index at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Different prefixes that anyone holds, including those about to be swept.
    pub distinct_blocks: usize,
    /// Blocks held, counted once per holder: what [`IndexLimits::max_blocks`] bounds.
    pub blocks: usize,
    /// Of those, blocks of cleared holders and removed workers: in no answer any more, their memory not yet returned.
    pub sweeping: usize,
    /// Caches (a worker's ranks) that hold anything.
    pub holders: usize,
    /// Everything that was ever applied.
    pub applied: Applied,
}
