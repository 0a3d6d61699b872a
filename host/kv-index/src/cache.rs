//! One cache's lanes, and what its engine calls the blocks in them.
//!
//! A block has one name that all caches share: the one it was first stored under. Engines that hash alike, which is the
//! normal case, need nothing else. Where a cache calls a block otherwise, its lane keeps that alias; where it does not hold the
//! block under the shared name, the lane says so.

use std::collections::hash_map::IntoIter;
use std::collections::{HashMap, HashSet};

use routing::{Attention, DpRank, Tier, WorkerId};

use crate::extent::BlockId;
use crate::forest::{Forest, Place};
use crate::lanes::LaneId;
use crate::shared::Holder;

/// Names that a cache may have used for two contents each; at one more, everything that it told is forgotten.
const MOST_AMBIGUOUS: usize = 65_536;

/// What one lane calls a block that it does not simply hold under the shared name.
#[derive(Debug, Default)]
pub(crate) struct Renamed {
    is_held_by_shared_name: bool,
    aliases: Vec<u64>,
}

/// What a lane that left called its blocks: dropped a few at a time.
pub(crate) type SpentNames = IntoIter<BlockId, Renamed>;

/// One cache's blocks on one tier, in one group.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Blocks held.
    pub(crate) held: u64,
    aliases: HashMap<u64, BlockId>,
    renamed: HashMap<BlockId, Renamed>,
    /// Whether nobody told of its blocks.
    pub(crate) is_expected: bool,
    /// The block removed last: engines evict tail first, so that its neighbour is likely to be next.
    pub(crate) last_removed: Option<Place>,
}

/// What the blocks of a group are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) index: u32,
    pub(crate) attention: Attention,
    pub(crate) block_size: u32,
}

/// Where a lane belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheLane {
    pub(crate) tier: Tier,
    pub(crate) group: u32,
    pub(crate) id: LaneId,
}

/// One cache.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) lanes: Vec<CacheLane>,
    pub(crate) groups: Vec<Group>,
    /// Tokens of the blocks that all groups are counted in; 0 before the first.
    pub(crate) base: u32,
    ambiguous: HashSet<u64>,
    /// Where the last store ended, under which name: the next one mostly goes on from there.
    pub(crate) last_stored: Option<(u64, Place)>,
}

/// All caches, by worker and rank. Workers' numbers count up from 0 and are dense.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    workers: Vec<Vec<(DpRank, Cache)>>,
}

impl Caches {
    pub(crate) fn get(&self, holder: Holder) -> Option<&Cache> {
        self.ranks(holder.worker)
            .find(|(rank, _)| *rank == holder.rank)
            .map(|(_, cache)| cache)
    }

    pub(crate) fn get_mut(&mut self, holder: Holder) -> Option<&mut Cache> {
        let ranks = self.workers.get_mut(holder.worker.0 as usize)?;
        ranks
            .iter_mut()
            .find(|(rank, _)| *rank == holder.rank)
            .map(|(_, cache)| cache)
    }

    /// A cache, made where it is not there.
    pub(crate) fn make(&mut self, holder: Holder) -> &mut Cache {
        let worker = holder.worker.0 as usize;
        if self.workers.len() <= worker {
            self.workers.resize_with(worker + 1, Vec::new);
        }
        let ranks = &mut self.workers[worker];
        let at = match ranks.binary_search_by_key(&holder.rank, |(rank, _)| *rank) {
            Ok(at) => at,
            Err(at) => {
                ranks.insert(at, (holder.rank, Cache::default()));
                at
            }
        };
        &mut ranks[at].1
    }

    pub(crate) fn remove(&mut self, holder: Holder) -> Option<Cache> {
        let ranks = self.workers.get_mut(holder.worker.0 as usize)?;
        let at = ranks.iter().position(|(rank, _)| *rank == holder.rank)?;
        let (_, cache) = ranks.remove(at);
        if ranks.is_empty() {
            // The number is not given again: nothing is to be kept for it.
            *ranks = Vec::new();
        }
        Some(cache)
    }

    /// A worker's, by rank.
    pub(crate) fn ranks(&self, worker: WorkerId) -> impl Iterator<Item = &(DpRank, Cache)> {
        self.workers.get(worker.0 as usize).into_iter().flatten()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Cache> {
        self.workers.iter().flatten().map(|(_, cache)| cache)
    }

    /// The workers that have any.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerId> {
        let any = self
            .workers
            .iter()
            .enumerate()
            .filter(|(_, ranks)| !ranks.is_empty());
        any.map(|(at, _)| WorkerId(at as u32))
    }
}

impl Cache {
    pub(crate) fn lane(&self, tier: Tier, group: u32) -> Option<LaneId> {
        let here = |lane: &&CacheLane| lane.tier == tier && lane.group == group;
        self.lanes.iter().find(here).map(|lane| lane.id)
    }

    pub(crate) fn group(&self, index: u32) -> Option<Group> {
        self.groups.iter().copied().find(|group| group.index == index)
    }

    /// Whether one walk answers for the whole cache.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            self.groups[..],
            [Group {
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

    /// Distrusts a name; false if too many are distrusted.
    pub(crate) fn distrust(&mut self, name: u64) -> bool {
        self.ambiguous.len() < MOST_AMBIGUOUS && {
            self.ambiguous.insert(name);
            true
        }
    }
}

impl Lane {
    /// Whether this lane holds blocks under names of its own.
    pub(crate) fn has_aliases(&self) -> bool {
        !self.renamed.is_empty()
    }

    /// The block that the lane holds under this name.
    pub(crate) fn resolve(&self, id: LaneId, name: u64, forest: &Forest) -> Option<BlockId> {
        if let Some(&block) = self.aliases.get(&name) {
            return Some(block);
        }
        forest.find_named(name, |block| {
            self.holds_by_shared_name(id, block, forest).then_some(block)
        })
    }

    /// Whether the lane holds the block, and under the shared name.
    pub(crate) fn holds_by_shared_name(&self, id: LaneId, block: BlockId, forest: &Forest) -> bool {
        let place = forest.place(block);
        forest.run(place.run).covers(id, place.at)
            && (self.renamed.is_empty()
                || self
                    .renamed
                    .get(&block)
                    .is_none_or(|renamed| renamed.is_held_by_shared_name))
    }

    /// Whether the lane has a say about this block's names beyond what coverage says.
    pub(crate) fn is_renamed(&self, block: BlockId) -> bool {
        !self.renamed.is_empty() && self.renamed.contains_key(&block)
    }

    /// The alias's block, if the name is one.
    pub(crate) fn alias(&self, name: u64) -> Option<BlockId> {
        if self.aliases.is_empty() {
            None
        } else {
            self.aliases.get(&name).copied()
        }
    }

    /// Notes that a block that is held (`was_held` before) goes by its shared name; false if that was so.
    pub(crate) fn add_shared_name(&mut self, block: BlockId, was_held: bool) -> bool {
        match self.renamed.get_mut(&block) {
            Some(renamed) => !std::mem::replace(&mut renamed.is_held_by_shared_name, true),
            None => !was_held,
        }
    }

    /// Notes that a block that is held (`was_held` before) goes by this name of the lane's own.
    pub(crate) fn add_alias(&mut self, name: u64, block: BlockId, was_held: bool) {
        self.aliases.insert(name, block);
        let renamed = self.renamed.entry(block).or_insert(Renamed {
            is_held_by_shared_name: was_held,
            aliases: Vec::new(),
        });
        renamed.aliases.push(name);
    }

    /// Takes a name away from a block that goes by it; answers whether that was its last.
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

    /// Forgets every name of a block that is taken from the lane whatever it is called.
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

    /// What the name of one block takes, roughly.
    pub(crate) const NAME_BYTES: usize = size_of::<(BlockId, Renamed)>() + 9;

    /// A rough count of the memory its names take.
    pub(crate) fn bytes(&self) -> usize {
        self.aliases.capacity() * (size_of::<(u64, BlockId)>() + 1)
            + self.renamed.capacity() * Self::NAME_BYTES
    }

    /// Returns what it called blocks, where it did, for that to be dropped a little at a time: each name has memory of its own.
    pub(crate) fn into_names(self) -> Option<SpentNames> {
        (!self.renamed.is_empty()).then(|| self.renamed.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_workers_that_left() {
        let mut caches = Caches::default();
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
