//! Removal of blocks from lanes by engine hash.

use std::ops::Range;

use routing::{Attention, RemovedBlocks, Tier};

use crate::cache::CacheGroup;
use crate::core::IndexCore;
use crate::count::Applied;
use crate::forest::BlockPosition;
use crate::holder::Holder;
use crate::lanes::LaneId;

/// Number of tiers of a group's blocks.
const TIERS: usize = 4;

impl IndexCore {
    pub(crate) fn remove(
        &mut self,
        holder: Holder,
        removed: &RemovedBlocks,
        part: Range<usize>,
        applied: &mut Applied,
    ) {
        let Some(cache) = self.caches.get(holder) else {
            applied.absent += part.len() as u64;
            return;
        };
        let leaves = |tier| removed.tier.is_none_or(|only| only == tier);
        let lanes = cache
            .lanes
            .iter()
            .filter(|lane| lane.group == removed.group && leaves(lane.tier));
        let mut left = [None; TIERS];
        left.iter_mut()
            .zip(lanes)
            .for_each(|(place, lane)| *place = Some(lane.id));
        // A window or state group drops blocks of a prefix that the full group still has.
        let group = cache.group(removed.group);
        let is_partial =
            |group: CacheGroup| matches!(group.attention, Attention::Window { .. } | Attention::State);
        let ends_prefix = leaves(Tier::Device) && !group.is_some_and(is_partial);
        let expected = self.expected.get(&holder.worker).filter(|_| ends_prefix).copied();
        for hash in &removed.hashes[part] {
            let mut was_held = None;
            for lane in left.into_iter().flatten() {
                was_held = self.remove_name(lane, hash.0).or(was_held);
            }
            // A block that the engine drops is not predicted any more.
            if let (Some(place), Some(expected)) = (was_held, &expected) {
                expected.lanes().for_each(|lane| self.uncover(lane, place));
            }
            *(if was_held.is_some() {
                &mut applied.removed
            } else {
                &mut applied.absent
            }) += 1;
        }
    }

    /// Removes the block that a lane holds under this name. Returns its position.
    pub(crate) fn remove_name(&mut self, id: LaneId, name: u64) -> Option<BlockPosition> {
        let lane = &self.lanes[id.0 as usize];
        let neighbour = lane.last_removed.and_then(|last| {
            let place = BlockPosition {
                run: last.run,
                at: last.at.checked_sub(1)?,
            };
            let is_it = lane.alias(name).is_none()
                && self.is_named(place, name)
                && lane.holds_by_shared_name(id, self.forest.block(place), &self.forest);
            is_it.then_some(place)
        });
        let place = match neighbour {
            Some(place) => place,
            None => self.forest.place(lane.resolve(id, name, &self.forest)?),
        };
        let block = self.forest.block(place);
        let lane = &mut self.lanes[id.0 as usize];
        lane.last_removed = Some(place);
        if lane.remove_name(name, block) {
            self.uncover(id, place);
        }
        Some(place)
    }

    /// Removes one block from a lane.
    pub(crate) fn uncover(&mut self, lane: LaneId, place: BlockPosition) {
        let run = self.forest.run_mut(place.run);
        if run.coverage.uncover(lane, place.at, run.len) {
            self.lanes[lane.0 as usize].held -= 1;
            self.note_loose(place.run);
        }
    }
}
