//! Contents of one cache as values: exported from one index, imported into another.
//!
//! A snapshot has the chains of blocks that the cache holds, by their sequence hashes, and the engine's names of the
//! held blocks. So the engine's later events apply to the imported cache as they do to the exported one.

mod ancestors;
mod export;
mod import;

use routing::{Attention, Tier};

pub(crate) use self::export::CacheExport;
pub(crate) use self::import::ImportedEnds;
use crate::cache::MOST_AMBIGUOUS;
use crate::count::PART;
use crate::ingest::MOST_GROUPS;

/// Most blocks of one chain of a snapshot.
pub const MOST_CHAIN_BLOCKS: usize = PART;
/// Most ambiguous names of a snapshot.
pub const MOST_SNAPSHOT_AMBIGUOUS: usize = MOST_AMBIGUOUS;
/// Most groups of a snapshot.
pub const MOST_SNAPSHOT_GROUPS: usize = MOST_GROUPS;

/// Contents of one cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheSnapshot {
    /// Block size in tokens that all groups are counted in.
    pub base: u32,
    /// KV-cache groups.
    pub groups: Vec<SnapshotGroup>,
    /// Names that the engine has used for two contents, sorted.
    pub ambiguous: Vec<u64>,
    /// Chains that the cache holds blocks of. A chain comes after the one that has its parent.
    pub chains: Vec<SnapshotChain>,
    /// Set if nothing is left out.
    pub is_whole: bool,
}

/// Block size and attention of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotGroup {
    /// Number, as in events.
    pub index: u32,
    /// Attention.
    pub attention: Attention,
    /// Tokens of a block.
    pub block_size: u32,
}

/// Consecutive blocks, at most [`MOST_CHAIN_BLOCKS`]. Some may be held by other caches only, and lead to held ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotChain {
    /// Sequence hash of the prefix before the first; `None` at the start of a prompt.
    pub parent: Option<u64>,
    /// Sequence hash of the prefix that ends with each block.
    pub contents: Vec<u64>,
    /// Blocks that the cache holds, by tier and group.
    pub holds: Vec<SnapshotHold>,
}

/// Consecutive blocks of a chain that the cache holds on one tier in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHold {
    /// Tier.
    pub tier: Tier,
    /// Number of the group.
    pub group: u32,
    /// Place of the first in the chain.
    pub start: u32,
    /// Name of each.
    pub names: Vec<u64>,
    /// Further names of some: place among `names`, and name.
    pub further: Vec<(u32, u64)>,
}

impl SnapshotChain {
    /// Returns whether all places are within the chain.
    fn is_valid(&self) -> bool {
        let fits = |hold: &SnapshotHold| {
            let end = (hold.start as usize).saturating_add(hold.names.len());
            end <= self.contents.len()
                && hold
                    .further
                    .iter()
                    .all(|&(place, _)| (place as usize) < hold.names.len())
        };
        self.contents.len() <= MOST_CHAIN_BLOCKS && self.holds.iter().all(fits)
    }
}

impl SnapshotHold {
    /// Returns the names of a block of the chain; none if it is not held.
    fn names_at(&self, place: usize) -> impl Iterator<Item = u64> + '_ {
        let at = place.checked_sub(self.start as usize);
        let name = at.and_then(|at| self.names.get(at)).copied();
        let further = self.further.iter();
        let further = further.filter(move |(further, _)| at == Some(*further as usize));
        name.into_iter().chain(further.map(|&(_, name)| name))
    }
}
