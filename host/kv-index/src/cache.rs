//! Per-cache state: a cache's lanes, and the names its engine gives to blocks.
//!
//! All caches share one name per block: the one it was first stored under. Engines that hash alike, the normal case,
//! need nothing else. If a cache uses another name, its lane stores that alias. If it does not hold the block under
//! the shared name, the lane records that.

use std::collections::hash_map::IntoIter;
use std::collections::{HashMap, HashSet};

use routing::{Attention, DpRank, Tier, WorkerId};

use crate::extent::BlockId;
use crate::forest::{BlockPosition, RunForest};
use crate::holder::Holder;
use crate::lanes::LaneId;

/// Most names that a cache may have used for two contents each. One more clears the cache.
pub(crate) const MOST_AMBIGUOUS: usize = 65_536;

/// Most aliases of one block in a lane. An engine has one, or a few for a block that it computed several times.
pub(crate) const MOST_ALIASES: usize = 16;

/// Names of the blocks that a lane does not hold under exactly the shared name.
#[derive(Debug, Default)]
pub(crate) struct LaneNames {
    is_held_by_shared_name: bool,
    aliases: Vec<u64>,
}

/// Block names of a removed lane, dropped a few at a time.
pub(crate) type SpentNames = IntoIter<BlockId, LaneNames>;

/// Lane: the blocks of one cache on one tier, in one group.
#[derive(Debug, Default)]
pub(crate) struct HolderLane {
    /// Blocks held.
    pub(crate) held: u64,
    aliases: HashMap<u64, BlockId>,
    renamed: HashMap<BlockId, LaneNames>,
    /// The lane holds predicted blocks: no event reported them.
    pub(crate) is_expected: bool,
    /// The block removed last. Engines evict the tail first, so its neighbour is likely to be next.
    pub(crate) last_removed: Option<BlockPosition>,
}

/// Block size and attention of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheGroup {
    pub(crate) index: u32,
    pub(crate) attention: Attention,
    pub(crate) block_size: u32,
}

/// Owner of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheLane {
    pub(crate) tier: Tier,
    pub(crate) group: u32,
    pub(crate) id: LaneId,
}

/// One KV cache.
#[derive(Debug, Default)]
pub(crate) struct KvCache {
    pub(crate) lanes: Vec<CacheLane>,
    pub(crate) groups: Vec<CacheGroup>,
    /// Block size in tokens that all groups are counted in; 0 before the first store.
    pub(crate) base: u32,
    ambiguous: HashSet<u64>,
    /// End of the last store, and its name: the next store mostly continues there.
    pub(crate) last_stored: Option<(u64, BlockPosition)>,
}

/// All caches, by worker and rank. Worker numbers are dense and start at 0. A worker that left keeps an empty list,
/// as its number is not used again: 24 bytes for each worker number up to the highest that had a cache, so that a
/// lookup is an index.
#[derive(Debug, Default)]
pub(crate) struct CacheTable {
    workers: Vec<Vec<(DpRank, KvCache)>>,
}

impl CacheTable {
    pub(crate) fn get(&self, holder: Holder) -> Option<&KvCache> {
        self.ranks(holder.worker)
            .find(|(rank, _)| *rank == holder.rank)
            .map(|(_, cache)| cache)
    }

    pub(crate) fn get_mut(&mut self, holder: Holder) -> Option<&mut KvCache> {
        let ranks = self.workers.get_mut(holder.worker.0 as usize)?;
        ranks
            .iter_mut()
            .find(|(rank, _)| *rank == holder.rank)
            .map(|(_, cache)| cache)
    }

    /// Returns a cache; creates it if needed.
    pub(crate) fn make(&mut self, holder: Holder) -> &mut KvCache {
        let worker = holder.worker.0 as usize;
        if self.workers.len() <= worker {
            self.workers.resize_with(worker + 1, Vec::new);
        }
        let ranks = &mut self.workers[worker];
        let at = match ranks.binary_search_by_key(&holder.rank, |(rank, _)| *rank) {
            Ok(at) => at,
            Err(at) => {
                ranks.insert(at, (holder.rank, KvCache::default()));
                at
            }
        };
        &mut ranks[at].1
    }

    pub(crate) fn remove(&mut self, holder: Holder) -> Option<KvCache> {
        let ranks = self.workers.get_mut(holder.worker.0 as usize)?;
        let at = ranks.iter().position(|(rank, _)| *rank == holder.rank)?;
        let (_, cache) = ranks.remove(at);
        if ranks.is_empty() {
            // Worker numbers are not reused, so the memory is freed.
            *ranks = Vec::new();
        }
        Some(cache)
    }

    /// Returns the caches of a worker, by rank.
    pub(crate) fn ranks(&self, worker: WorkerId) -> impl Iterator<Item = &(DpRank, KvCache)> {
        self.workers.get(worker.0 as usize).into_iter().flatten()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &KvCache> {
        self.workers.iter().flatten().map(|(_, cache)| cache)
    }

    /// Returns the workers that have a cache.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerId> {
        let any = self
            .workers
            .iter()
            .enumerate()
            .filter(|(_, ranks)| !ranks.is_empty());
        any.map(|(at, _)| WorkerId(at as u32))
    }
}

impl KvCache {
    pub(crate) fn lane(&self, tier: Tier, group: u32) -> Option<LaneId> {
        let here = |lane: &&CacheLane| lane.tier == tier && lane.group == group;
        self.lanes.iter().find(here).map(|lane| lane.id)
    }

    pub(crate) fn group(&self, index: u32) -> Option<CacheGroup> {
        self.groups.iter().copied().find(|group| group.index == index)
    }

    /// Returns `true` if one walk covers the whole cache.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            self.groups[..],
            [CacheGroup {
                attention: Attention::Full,
                ..
            }]
        )
    }

    pub(crate) fn distrusts_any(&self) -> bool {
        !self.ambiguous.is_empty()
    }

    pub(crate) fn is_ambiguous(&self, name: u64) -> bool {
        !self.ambiguous.is_empty() && self.ambiguous.contains(&name)
    }

    /// Returns the ambiguous names, sorted.
    pub(crate) fn ambiguous_names(&self) -> Vec<u64> {
        let mut names: Vec<u64> = self.ambiguous.iter().copied().collect();
        names.sort_unstable();
        names
    }

    /// Marks a name as ambiguous. Returns `false` if too many are.
    pub(crate) fn distrust(&mut self, name: u64) -> bool {
        self.ambiguous.len() < MOST_AMBIGUOUS && {
            self.ambiguous.insert(name);
            true
        }
    }
}

impl HolderLane {
    /// Returns `true` if this lane has aliases.
    pub(crate) fn has_aliases(&self) -> bool {
        !self.renamed.is_empty()
    }

    /// Returns the block that the lane holds under a name.
    pub(crate) fn resolve(&self, id: LaneId, name: u64, forest: &RunForest) -> Option<BlockId> {
        if let Some(&block) = self.aliases.get(&name) {
            return Some(block);
        }
        forest.find_named(name, |block| {
            self.holds_by_shared_name(id, block, forest).then_some(block)
        })
    }

    /// Returns `true` if the lane holds the block under its shared name.
    pub(crate) fn holds_by_shared_name(&self, id: LaneId, block: BlockId, forest: &RunForest) -> bool {
        let place = forest.place(block);
        forest.run(place.run).covers(id, place.at)
            && (self.renamed.is_empty()
                || self
                    .renamed
                    .get(&block)
                    .is_none_or(|renamed| renamed.is_held_by_shared_name))
    }

    /// Returns `true` if the lane stores names of this block in addition to the coverage.
    pub(crate) fn is_renamed(&self, block: BlockId) -> bool {
        !self.renamed.is_empty() && self.renamed.contains_key(&block)
    }

    /// Returns the names that the lane has for a block that it holds; `shared` is the block's shared name.
    pub(crate) fn names_of(&self, block: BlockId, shared: Option<u64>) -> impl Iterator<Item = u64> + '_ {
        let renamed = match self.renamed.is_empty() {
            true => None,
            false => self.renamed.get(&block),
        };
        let shared = shared.filter(|_| renamed.is_none_or(|renamed| renamed.is_held_by_shared_name));
        let aliases = renamed.map_or(&[][..], |renamed| &renamed.aliases);
        shared.into_iter().chain(aliases.iter().copied())
    }

    /// Returns the block of an alias.
    pub(crate) fn alias(&self, name: u64) -> Option<BlockId> {
        if self.aliases.is_empty() {
            None
        } else {
            self.aliases.get(&name).copied()
        }
    }

    /// Records that a held block (`was_held`: before this call) has its shared name here. Returns `false` if that was
    /// recorded.
    pub(crate) fn add_shared_name(&mut self, block: BlockId, was_held: bool) -> bool {
        match self.renamed.get_mut(&block) {
            Some(renamed) => !std::mem::replace(&mut renamed.is_held_by_shared_name, true),
            None => !was_held,
        }
    }

    /// Returns `true` if the block can have one more alias here.
    pub(crate) fn has_room_for_alias(&self, block: BlockId) -> bool {
        let renamed = self.renamed.get(&block);
        renamed.is_none_or(|renamed| renamed.aliases.len() < MOST_ALIASES)
    }

    /// Records an alias of a held block (`was_held`: before this call), which has room for it.
    pub(crate) fn add_alias(&mut self, name: u64, block: BlockId, was_held: bool) {
        self.aliases.insert(name, block);
        let renamed = self.renamed.entry(block).or_insert(LaneNames {
            is_held_by_shared_name: was_held,
            aliases: Vec::new(),
        });
        renamed.aliases.push(name);
    }

    /// Removes a name of a block. Returns `true` if it was the last one.
    pub(crate) fn remove_name(&mut self, name: u64, block: BlockId) -> bool {
        let was_alias = !self.aliases.is_empty() && self.aliases.remove(&name).is_some();
        let Some(renamed) = self.renamed.get_mut(&block) else {
            return true;
        };
        if was_alias {
            renamed.aliases.retain(|alias| *alias != name);
        } else {
            renamed.is_held_by_shared_name = false;
        }
        let is_last = renamed.aliases.is_empty() && !renamed.is_held_by_shared_name;
        if renamed.aliases.is_empty() {
            self.renamed.remove(&block);
        }
        is_last
    }

    /// Forgets every name of a block that is removed from the lane.
    pub(crate) fn forget_names(&mut self, block: BlockId) {
        for alias in self
            .renamed
            .remove(&block)
            .into_iter()
            .flat_map(|renamed| renamed.aliases)
        {
            self.aliases.remove(&alias);
        }
    }

    /// Approximate memory of one name.
    pub(crate) const NAME_BYTES: usize = size_of::<(BlockId, LaneNames)>() + 9;

    /// Returns the approximate memory of the names.
    pub(crate) fn bytes(&self) -> usize {
        self.aliases.capacity() * (size_of::<(u64, BlockId)>() + 1)
            + self.renamed.capacity() * Self::NAME_BYTES
    }

    /// Returns the lane's names, if it has any, to be dropped a few at a time: each has its own allocation.
    pub(crate) fn into_names(self) -> Option<SpentNames> {
        (!self.renamed.is_empty()).then(|| self.renamed.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_workers_that_left() {
        let mut caches = CacheTable::default();
        for worker in 0..100 {
            for rank in [0, 1] {
                caches.make(Holder {
                    worker: WorkerId(worker),
                    rank: DpRank(rank),
                });
            }
        }
        for worker in 1..100 {
            for rank in [1, 0] {
                let holder = Holder {
                    worker: WorkerId(worker),
                    rank: DpRank(rank),
                };
                assert!(caches.remove(holder).is_some());
            }
        }
        assert_eq!(caches.workers().collect::<Vec<_>>(), [WorkerId(0)]);
        assert!(caches.workers[1..].iter().all(|ranks| ranks.capacity() == 0));
    }
}
