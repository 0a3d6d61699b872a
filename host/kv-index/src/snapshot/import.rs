//! Import of a cache, a chain at a time.

use std::collections::HashMap;

use routing::Attention;

use crate::cache::CacheGroup;
use crate::core::IndexCore;
use crate::count::Applied;
use crate::forest::BlockPosition;
use crate::hold::{LaneProgress, StoreOutcome};
use crate::holder::Holder;
use crate::ingest::MOST_GROUPS;
use crate::snapshot::{CacheSnapshot, SnapshotChain, SnapshotHold};

/// Runs that the eviction hand examines with every chain.
const GC_RUNS_PER_CHAIN: u32 = 2;

/// Positions of the blocks after which further chains of a snapshot begin, by their content.
#[derive(Debug)]
pub(crate) struct ImportedEnds(HashMap<u64, Option<BlockPosition>>);

impl ImportedEnds {
    pub(crate) fn of(snapshot: &CacheSnapshot) -> Self {
        let parents = snapshot.chains.iter().filter_map(|chain| chain.parent);
        Self(parents.map(|parent| (parent, None)).collect())
    }
}

impl IndexCore {
    /// Clears the cache, and records the kinds of its blocks. Returns whether they are valid.
    pub(crate) fn begin_import(&mut self, holder: Holder, snapshot: &CacheSnapshot) -> (Applied, bool) {
        let applied = self.clear(holder);
        let base = snapshot.base;
        let groups: Vec<CacheGroup> = snapshot
            .groups
            .iter()
            .filter(|group| group.attention != Attention::Unknown && group.block_size > 0)
            .filter(|group| base > 0 && group.block_size.is_multiple_of(base))
            .map(|group| CacheGroup {
                index: group.index,
                attention: group.attention,
                block_size: group.block_size,
            })
            .collect();
        let mut numbers: Vec<u32> = groups.iter().map(|group| group.index).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let is_valid = !groups.is_empty()
            && numbers.len() == snapshot.groups.len()
            && snapshot.groups.len() <= MOST_GROUPS;
        if is_valid {
            self.know_groups(holder, base, groups);
            let cache = self.caches.make(holder);
            for name in &snapshot.ambiguous {
                // Beyond the limit there is nothing to gain by it.
                let _ = cache.distrust(*name);
            }
        }
        (applied, is_valid)
    }

    /// Adds the blocks of a chain to the cache.
    pub(crate) fn import_chain(
        &mut self,
        holder: Holder,
        chain: &SnapshotChain,
        ends: &mut ImportedEnds,
    ) -> Applied {
        let mut applied = Applied::default();
        let mut lanes = match chain.is_valid() {
            true => self.lanes_of(holder, chain),
            false => None,
        };
        match &mut lanes {
            Some(lanes) => self.hold_chain(chain, lanes, ends, &mut applied),
            None => applied.malformed += chain.contents.len() as u64,
        }
        self.applied += applied;
        self.gc_step(GC_RUNS_PER_CHAIN);
        applied
    }

    /// Returns the lane of each part that is held, and makes it if needed. `None` for an unknown group.
    fn lanes_of<'c>(
        &mut self,
        holder: Holder,
        chain: &'c SnapshotChain,
    ) -> Option<Vec<(LaneProgress, &'c SnapshotHold)>> {
        let mut lanes = Vec::with_capacity(chain.holds.len());
        for hold in &chain.holds {
            let cache = self.caches.get(holder)?;
            cache.group(hold.group)?;
            let lane = match cache.lane(hold.tier, hold.group) {
                Some(lane) => lane,
                None => {
                    let lane = self.add_lane(holder, hold.tier, hold.group);
                    self.refresh_row(holder.worker);
                    lane
                }
            };
            let progress = LaneProgress {
                holder,
                lane,
                parent: None,
                is_plain: self.has_plain_names(holder),
                pending: None,
            };
            lanes.push((progress, hold));
        }
        Some(lanes)
    }

    fn hold_chain(
        &mut self,
        chain: &SnapshotChain,
        lanes: &mut [(LaneProgress, &SnapshotHold)],
        ends: &mut ImportedEnds,
        applied: &mut Applied,
    ) {
        let mut before = chain.parent;
        let mut parent = before.and_then(|before| self.position_of(before, ends));
        let end_before = parent;
        for (at, &content) in chain.contents.iter().enumerate() {
            let Ok(place) = self.find_or_add_after(parent, before, content) else {
                applied.over_limit += (chain.contents.len() - at) as u64;
                break;
            };
            // Pending blocks must be recorded before other runs are evicted.
            if parent.is_some_and(|parent| parent.run != place.run) {
                self.write_down_all(lanes, applied);
            }
            self.hold_block(at, place, lanes, applied);
            if let Some(end) = ends.0.get_mut(&content) {
                *end = Some(place);
            }
            (before, parent) = (Some(content), Some(place));
        }
        self.write_down_all(lanes, applied);
        // Ancestors without a holder may be freed, once the blocks after them have their place.
        if let Some(BlockPosition { run, .. }) = end_before
            && self.forest.runs().find(run).is_some()
        {
            self.note_loose(run);
        }
    }

    /// Adds one block, under all its names, to the lanes that hold it.
    fn hold_block(
        &mut self,
        at: usize,
        place: BlockPosition,
        lanes: &mut [(LaneProgress, &SnapshotHold)],
        applied: &mut Applied,
    ) {
        for number in 0..lanes.len() {
            for name in lanes[number].1.names_at(at) {
                // A block that is pending counts as not named by any lane, and would lose its shared name.
                if self.forest.name(self.forest.run(place.run), place.at) != Some(name) {
                    self.write_down_all(lanes, applied);
                }
                if let StoreOutcome::Ambiguous = self.hold(&mut lanes[number].0, place, name, applied) {
                    applied.ambiguous += 1;
                }
            }
        }
        if lanes.iter().any(|(lane, _)| !lane.is_plain) {
            self.write_down_all(lanes, applied);
            lanes.iter_mut().for_each(|(lane, _)| lane.is_plain = false);
        }
    }

    fn write_down_all(&mut self, lanes: &mut [(LaneProgress, &SnapshotHold)], applied: &mut Applied) {
        for (lane, _) in lanes {
            self.write_down(lane, applied);
        }
    }

    /// Returns the position of the block that ends this prefix, if it is known.
    fn position_of(&self, content: u64, ends: &ImportedEnds) -> Option<BlockPosition> {
        // Blocks may have been evicted since.
        let is_there = |place: &BlockPosition| {
            let run = self.forest.runs().find(place.run);
            run.is_some_and(|run| place.at < run.len && self.forest.content(run, place.at) == content)
        };
        let known = ends.0.get(&content).copied().flatten().filter(is_there);
        known.or_else(|| {
            let run = self.forest.head(content)?;
            Some(BlockPosition { run, at: 0 })
        })
    }
}
