//! Storing one block: finds or creates it, and records its name in the cache.

use std::ops::Range;

use routing::{EngineBlockHash, StoredBlocks};

use crate::cache::KvCache;
use crate::core::IndexCore;
use crate::count::Applied;
use crate::extent::BlockId;
use crate::forest::{BlockPosition, NewBlock, NumbersExhausted};
use crate::holder::Holder;
use crate::lanes::LaneId;
use crate::run::RunId;

/// Most blocks that may share one name. Content hashes never collide. Counting engines share each name with as many
/// blocks as there are such engines.
pub(crate) const MOST_NAMESAKES: usize = 256;

/// A store event that is being applied, and its progress.
pub(crate) struct StoreProgress<'a> {
    pub(crate) stored: &'a StoredBlocks,
    /// The blocks that are applied in this step.
    pub(crate) part: Range<usize>,
    /// Block size of the cache in tokens.
    pub(crate) base: u32,
    pub(crate) lane: LaneProgress,
}

/// Lane to which blocks are being added.
pub(crate) struct LaneProgress {
    pub(crate) holder: Holder,
    pub(crate) lane: LaneId,
    /// The block before the next one.
    pub(crate) parent: Option<BlockPosition>,
    /// Names need no check for aliases or ambiguity in this cache.
    pub(crate) is_plain: bool,
    /// Blocks that the lane now holds by their shared name, not recorded in the coverage yet.
    pub(crate) pending: Option<RunSpan>,
}

/// Consecutive blocks of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSpan {
    pub(crate) run: RunId,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl RunSpan {
    /// Extends the span by one that follows it. Returns `false` if the other does not.
    pub(crate) fn extend(&mut self, next: Self) -> bool {
        let follows = self.run == next.run && self.end == next.start;
        if follows {
            self.end = next.end;
        }
        follows
    }

    /// Returns the last block.
    pub(crate) fn last(self) -> BlockPosition {
        BlockPosition {
            run: self.run,
            at: self.end - 1,
        }
    }
}

impl<'a> StoreProgress<'a> {
    /// Returns the names of the part's blocks.
    pub(crate) fn names(&self) -> &'a [EngineBlockHash] {
        &self.stored.hashes[self.part.clone()]
    }

    /// Returns the number of the event's blocks from the part's start on.
    pub(crate) fn left(&self) -> usize {
        self.stored.hashes.len() - self.part.start
    }
}

/// Result of storing one block.
pub(crate) enum StoreOutcome {
    Held,
    Ambiguous,
    OverLimit,
}

impl StoreOutcome {
    /// Returns `true` if the next block has a parent now. Otherwise counts this block and the `left - 1` after it.
    pub(crate) fn goes_on(&self, left: usize, applied: &mut Applied) -> bool {
        match self {
            Self::Held => return true,
            Self::Ambiguous => {
                applied.ambiguous += 1;
                applied.unknown_parent += left as u64 - 1;
            }
            Self::OverLimit => applied.over_limit += left as u64,
        }
        false
    }
}

impl IndexCore {
    /// Returns `true` if neither this cache nor the index has names that need a check.
    pub(crate) fn has_plain_names(&self, holder: Holder) -> bool {
        let aliased = |cache: &KvCache| {
            cache
                .lanes
                .iter()
                .any(|lane| self.lanes[lane.id.0 as usize].has_aliases())
        };
        let is_odd = |cache: &KvCache| cache.distrusts_any() || aliased(cache);
        !self.forest.has_shared_names() && !self.caches.get(holder).is_some_and(is_odd)
    }

    /// Holds all blocks at once that continue the parent's run under the names they have there. Returns their number.
    pub(crate) fn hold_known(
        &mut self,
        storing: &mut LaneProgress,
        contents: &[u64],
        names: &[EngineBlockHash],
        applied: &mut Applied,
    ) -> usize {
        let Some(BlockPosition { run, at }) = storing.parent else {
            return 0;
        };
        if !storing.is_plain {
            return 0;
        }
        let start = at + 1;
        let known = self
            .forest
            .common_named(self.forest.run(run), start, contents, names);
        if known > 0 {
            let end = start + known;
            self.add_pending(storing, RunSpan { run, start, end }, applied);
            storing.parent = Some(BlockPosition { run, at: end - 1 });
        }
        known as usize
    }

    /// Returns the block with this content; creates it if needed.
    pub(crate) fn find_or_add(
        &mut self,
        parent: Option<BlockPosition>,
        content: u64,
    ) -> Result<BlockPosition, NumbersExhausted> {
        self.find_or_add_new(parent, content, NewBlock::default())
    }

    /// Works as [`IndexCore::find_or_add`] for a block that the tables may be known not to have.
    pub(crate) fn find_or_add_new(
        &mut self,
        parent: Option<BlockPosition>,
        content: u64,
        new: NewBlock,
    ) -> Result<BlockPosition, NumbersExhausted> {
        if let Some(place) = self.find(parent, content, new) {
            return Ok(place);
        }
        let before = parent.map(|BlockPosition { run, at }| self.forest.content(self.forest.run(run), at));
        self.add_after(parent, before, content)
    }

    /// Returns the block with this content. If needed, creates it after the prefix `before`, which ends at `parent` if
    /// that is known.
    pub(crate) fn find_or_add_after(
        &mut self,
        parent: Option<BlockPosition>,
        before: Option<u64>,
        content: u64,
    ) -> Result<BlockPosition, NumbersExhausted> {
        match self.find(parent, content, NewBlock::default()) {
            Some(place) => Ok(place),
            None => self.add_after(parent, before, content),
        }
    }

    /// Returns the block with this content, which follows `parent` or begins a run.
    pub(crate) fn find(
        &self,
        parent: Option<BlockPosition>,
        content: u64,
        new: NewBlock,
    ) -> Option<BlockPosition> {
        if let Some(BlockPosition { run, at }) = parent {
            let here = self.forest.run(run);
            if at + 1 < here.len && self.forest.content(here, at + 1) == content {
                return Some(BlockPosition { run, at: at + 1 });
            }
        }
        if new.is_no_head {
            return None;
        }
        let run = self.forest.head(content)?;
        Some(BlockPosition { run, at: 0 })
    }

    /// Creates the block with this content.
    fn add_after(
        &mut self,
        parent: Option<BlockPosition>,
        before: Option<u64>,
        content: u64,
    ) -> Result<BlockPosition, NumbersExhausted> {
        if self.forest.blocks() >= self.limits.max_blocks && !self.make_room(parent.map(|parent| parent.run))
        {
            return Err(NumbersExhausted);
        }
        if let Some(BlockPosition { run, at }) = parent {
            let here = self.forest.run(run);
            if at + 1 == here.len
                && !here.coverage.whole.is_many()
                && let Ok(at) = self.forest.append(run, content)
            {
                return Ok(BlockPosition { run, at });
            }
        }
        let run = match self.forest.start(content, before) {
            // All numbers are in use.
            Err(NumbersExhausted) if self.make_room(parent.map(|parent| parent.run)) => {
                self.forest.start(content, before)?
            }
            started => started?,
        };
        Ok(BlockPosition { run, at: 0 })
    }

    /// Adds a block with its name to the store's lane.
    pub(crate) fn hold(
        &mut self,
        storing: &mut LaneProgress,
        place: BlockPosition,
        name: u64,
        applied: &mut Applied,
    ) -> StoreOutcome {
        self.hold_new(storing, place, name, NewBlock::default(), applied)
    }

    /// Works as [`IndexCore::hold`] for a block whose name the tables may be known not to have.
    pub(crate) fn hold_new(
        &mut self,
        storing: &mut LaneProgress,
        place: BlockPosition,
        name: u64,
        new: NewBlock,
        applied: &mut Applied,
    ) -> StoreOutcome {
        let block = self.forest.block(place);
        let mut shared_name = self.forest.name(self.forest.run(place.run), place.at);
        let is_usual = shared_name == Some(name) && storing.is_plain;
        let is_shared = !is_usual && !new.is_new_name && self.forest.has_namesake(name, block);
        if is_shared {
            self.write_down(storing, applied);
            if !self.admits_namesake(name, block) {
                self.note_loose(place.run);
                return StoreOutcome::Ambiguous;
            }
        }
        if (is_shared || !storing.is_plain) && self.stands_for_another(storing, name, block, applied) {
            self.note_loose(place.run);
            return StoreOutcome::Ambiguous;
        }
        if shared_name.is_some_and(|shared| shared != name) && !self.is_named_by_any(place) {
            self.forest.drop_name(place);
            shared_name = None;
        }
        if shared_name.is_none() {
            self.forest.set_name(block, name, is_shared);
            storing.is_plain &= !is_shared;
            shared_name = Some(name);
        }
        if shared_name == Some(name) && !self.lanes[storing.lane.0 as usize].is_renamed(block) {
            let (run, start) = (place.run, place.at);
            let end = start + 1;
            self.add_pending(storing, RunSpan { run, start, end }, applied);
        } else {
            self.write_down(storing, applied);
            let is_shared_name = shared_name == Some(name);
            let lane = &self.lanes[storing.lane.0 as usize];
            if !is_shared_name && lane.alias(name) != Some(block) && !lane.has_room_for_alias(block) {
                return StoreOutcome::Ambiguous;
            }
            storing.is_plain = false;
            self.hold_renamed(storing.lane, place, name, is_shared_name, applied);
        }
        storing.parent = Some(place);
        if !self.stores.is_empty() {
            self.write_down(storing, applied);
            self.join_objects(name);
        }
        StoreOutcome::Held
    }

    /// Removes the name from other blocks that no cache uses it for any more. Returns `false` if so many blocks keep
    /// it that no further block gets it: lookups read each of them.
    fn admits_namesake(&mut self, name: u64, block: BlockId) -> bool {
        let namesakes = self.forest.namesakes(name, block, MOST_NAMESAKES);
        let mut left = namesakes.len();
        for namesake in namesakes {
            let place = self.forest.place(namesake);
            if !self.is_named_by_any(place) {
                self.forest.drop_name(place);
                left -= 1;
            }
        }
        left < MOST_NAMESAKES
    }

    /// Returns `true` if any cache may still use the block's shared name.
    fn is_named_by_any(&self, place: BlockPosition) -> bool {
        let run = self.forest.run(place.run);
        run.coverage.lanes().into_iter().any(|lane| {
            let has_left = self.leaving.lanes.contains(lane) || self.leaving.later.contains(lane);
            !has_left && !self.lanes[lane.0 as usize].is_expected && run.covers(lane, place.at)
        })
    }

    /// Checks if the cache uses the name for other content already. If so, the name becomes ambiguous.
    fn stands_for_another(
        &mut self,
        storing: &mut LaneProgress,
        name: u64,
        block: BlockId,
        applied: &mut Applied,
    ) -> bool {
        self.write_down(storing, applied);
        let Some(cache) = self.caches.get(storing.holder) else {
            return false;
        };
        if cache.is_ambiguous(name) {
            return true;
        }
        let stands = cache.lanes.iter().any(|lane| {
            let names = &self.lanes[lane.id.0 as usize];
            match names.alias(name) {
                Some(alias) => alias != block,
                None => {
                    let held =
                        |other| other != block && names.holds_by_shared_name(lane.id, other, &self.forest);
                    self.forest
                        .find_named(name, |other| held(other).then_some(()))
                        .is_some()
                }
            }
        });
        if stands {
            self.distrust(storing.holder, name);
        }
        stands
    }

    /// Marks a name as ambiguous: it has two contents.
    fn distrust(&mut self, holder: Holder, name: u64) {
        let Some(cache) = self.caches.get_mut(holder) else {
            return;
        };
        let is_noted = cache.distrust(name);
        let lanes: Vec<LaneId> = cache.lanes.iter().map(|lane| lane.id).collect();
        for lane in lanes {
            self.remove_name(lane, name);
        }
        if !is_noted {
            self.forget(holder);
        }
    }

    fn add_pending(&mut self, storing: &mut LaneProgress, more: RunSpan, applied: &mut Applied) {
        if storing.pending.as_mut().is_some_and(|span| span.extend(more)) {
            return;
        }
        self.write_down(storing, applied);
        storing.pending = Some(more);
    }

    /// Records pending blocks in the coverage.
    pub(crate) fn write_down(&mut self, storing: &mut LaneProgress, applied: &mut Applied) {
        let Some(RunSpan { run, start, end }) = storing.pending.take() else {
            return;
        };
        let new = u64::from(self.cover(storing.lane, run, start, end));
        applied.stored += new;
        applied.known += u64::from(end - start) - new;
    }

    /// Adds a span of a run to a lane. Returns the number of blocks it did not hold before.
    pub(crate) fn cover(&mut self, lane: LaneId, run: RunId, start: u32, end: u32) -> u32 {
        let run = self.forest.run_mut(run);
        let new = run.coverage.cover(lane, start, end, run.len);
        run.mark_used();
        self.lanes[lane.0 as usize].held += u64::from(new);
        new
    }

    /// Holds a block that the lane names, or named, differently than others do.
    fn hold_renamed(
        &mut self,
        lane: LaneId,
        place: BlockPosition,
        name: u64,
        is_shared_name: bool,
        applied: &mut Applied,
    ) {
        let block = self.forest.block(place);
        let was_held = self.cover(lane, place.run, place.at, place.at + 1) == 0;
        let names = &mut self.lanes[lane.0 as usize];
        let is_new = if is_shared_name {
            names.add_shared_name(block, was_held)
        } else if names.alias(name) == Some(block) {
            false
        } else {
            self.add_alias(lane, name, block, was_held);
            true
        };
        *(if is_new {
            &mut applied.stored
        } else {
            &mut applied.known
        }) += 1;
    }

    /// Records an alias of a block that a lane holds (`was_held`: before this call).
    pub(crate) fn add_alias(&mut self, lane: LaneId, name: u64, block: BlockId, was_held: bool) {
        self.aliased.insert(lane);
        self.lanes[lane.0 as usize].add_alias(name, block, was_held);
    }
}

#[cfg(test)]
mod tests;
