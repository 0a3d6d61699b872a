//! Holding one block: finding or making it, and what its cache calls it.

use std::ops::Range;

use routing::{EngineBlockHash, StoredBlocks};

use crate::cache::Cache;
use crate::core::Core;
use crate::count::Applied;
use crate::extent::BlockId;
use crate::forest::{Full, Place};
use crate::lanes::LaneId;
use crate::run::RunId;
use crate::shared::Holder;

/// Blocks that may share one name. Engines that hash content never share any; those that count upwards share each name with as
/// many others as there are of them.
pub(crate) const MOST_NAMESAKES: usize = 256;

/// A store that was found to fit, and how far it got.
pub(crate) struct Storing<'a> {
    pub(crate) holder: Holder,
    pub(crate) stored: &'a StoredBlocks,
    /// The blocks of it that are taken in now.
    pub(crate) part: Range<usize>,
    pub(crate) lane: LaneId,
    /// Tokens of the blocks that the cache is counted in.
    pub(crate) base: u32,
    /// The block before the next one.
    pub(crate) parent: Option<Place>,
    /// Whether a name can only mean what its shared block says, as far as this cache goes.
    pub(crate) is_plain: bool,
    /// Blocks that the lane now holds by their shared name, not yet written down.
    pub(crate) pending: Option<Span>,
}

/// Neighbours of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    run: RunId,
    start: u32,
    end: u32,
}

impl<'a> Storing<'a> {
    /// The names of the part's blocks.
    pub(crate) fn names(&self) -> &'a [EngineBlockHash] {
        &self.stored.hashes[self.part.clone()]
    }

    /// Blocks of the event from the part's start on.
    pub(crate) fn left(&self) -> usize {
        self.stored.hashes.len() - self.part.start
    }
}

/// What became of one block.
pub(crate) enum Outcome {
    Held,
    Ambiguous,
    OverLimit,
}

impl Outcome {
    /// Whether the next block has a parent now. If not, this one and the `left - 1` after it are counted.
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

impl Core {
    /// Whether neither this cache nor the index has names that need a closer look.
    pub(crate) fn has_plain_names(&self, holder: Holder) -> bool {
        let aliased = |cache: &Cache| {
            cache
                .lanes
                .iter()
                .any(|lane| self.lanes[lane.id.0 as usize].has_aliases())
        };
        let is_odd = |cache: &Cache| cache.distrusts_any() || aliased(cache);
        !self.forest.has_shared_names() && !self.caches.get(holder).is_some_and(is_odd)
    }

    /// Blocks that go on along the parent's run under the names they have there, all at once; answers how many.
    pub(crate) fn hold_known(
        &mut self,
        storing: &mut Storing<'_>,
        contents: &[u64],
        names: &[EngineBlockHash],
        applied: &mut Applied,
    ) -> usize {
        let Some(Place { run, at }) = storing.parent else {
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
            self.add_pending(storing, Span { run, start, end }, applied);
            storing.parent = Some(Place { run, at: end - 1 });
        }
        known as usize
    }

    /// The block with this content, made where it is not there.
    pub(crate) fn find_or_add(&mut self, parent: Option<Place>, content: u64) -> Result<Place, Full> {
        if let Some(Place { run, at }) = parent {
            let here = self.forest.run(run);
            if at + 1 < here.len && self.forest.content(here, at + 1) == content {
                return Ok(Place { run, at: at + 1 });
            }
        }
        if let Some(run) = self.forest.head(content) {
            return Ok(Place { run, at: 0 });
        }
        if self.forest.blocks() >= self.limits.max_blocks && !self.make_room(parent.map(|parent| parent.run))
        {
            return Err(Full);
        }
        if let Some(Place { run, at }) = parent {
            let here = self.forest.run(run);
            if at + 1 == here.len
                && !here.coverage.whole.is_many()
                && let Ok(at) = self.forest.append(run, content)
            {
                return Ok(Place { run, at });
            }
        }
        let before = parent.map(|Place { run, at }| self.forest.content(self.forest.run(run), at));
        let run = match self.forest.start(content, before) {
            // All numbers are taken.
            Err(Full) if self.make_room(parent.map(|parent| parent.run)) => {
                self.forest.start(content, before)?
            }
            started => started?,
        };
        Ok(Place { run, at: 0 })
    }

    /// Has the store's lane hold a block under a name.
    pub(crate) fn hold(
        &mut self,
        storing: &mut Storing<'_>,
        place: Place,
        name: u64,
        applied: &mut Applied,
    ) -> Outcome {
        let block = self.forest.block(place);
        let mut shared_name = self.forest.name(self.forest.run(place.run), place.at);
        let is_usual = shared_name == Some(name) && storing.is_plain;
        let is_shared = !is_usual && self.forest.has_namesake(name, block);
        if is_shared {
            self.write_down(storing, applied);
            if !self.admits_namesake(name, block) {
                self.note_loose(place.run);
                return Outcome::Ambiguous;
            }
        }
        if (is_shared || !storing.is_plain) && self.stands_for_another(storing, name, block, applied) {
            self.note_loose(place.run);
            return Outcome::Ambiguous;
        }
        if shared_name.is_some_and(|shared| shared != name) && !self.is_called(place) {
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
            self.add_pending(storing, Span { run, start, end }, applied);
        } else {
            self.write_down(storing, applied);
            storing.is_plain = false;
            self.hold_renamed(storing.lane, place, name, shared_name == Some(name), applied);
        }
        storing.parent = Some(place);
        if !self.stores.is_empty() {
            self.write_down(storing, applied);
            self.join_objects(name);
        }
        Outcome::Held
    }

    /// Drops the name of other blocks that no cache calls by it any more. False where the blocks left are so many that the name
    /// is given to no further one: lookups read each of them.
    fn admits_namesake(&mut self, name: u64, block: BlockId) -> bool {
        let namesakes = self.forest.namesakes(name, block, MOST_NAMESAKES);
        let mut left = namesakes.len();
        for namesake in namesakes {
            let place = self.forest.place(namesake);
            if !self.is_called(place) {
                self.forest.drop_name(place);
                left -= 1;
            }
        }
        left < MOST_NAMESAKES
    }

    /// Whether any cache may still call the block by its shared name.
    fn is_called(&self, place: Place) -> bool {
        let run = self.forest.run(place.run);
        run.coverage.lanes().into_iter().any(|lane| {
            let has_left = self.leaving.lanes.contains(lane) || self.leaving.later.contains(lane);
            !has_left && !self.lanes[lane.0 as usize].is_expected && run.covers(lane, place.at)
        })
    }

    /// Whether the cache uses the name for other content already. If so, the name is trusted for neither.
    fn stands_for_another(
        &mut self,
        storing: &mut Storing<'_>,
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

    /// Gives up a name: nobody can tell which of two contents it means.
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

    fn add_pending(&mut self, storing: &mut Storing<'_>, more: Span, applied: &mut Applied) {
        if let Some(span) = &mut storing.pending
            && span.run == more.run
            && span.end == more.start
        {
            span.end = more.end;
            return;
        }
        self.write_down(storing, applied);
        storing.pending = Some(more);
    }

    /// Writes down what is pending.
    pub(crate) fn write_down(&mut self, storing: &mut Storing<'_>, applied: &mut Applied) {
        let Some(Span { run, start, end }) = storing.pending.take() else {
            return;
        };
        let new = u64::from(self.cover(storing.lane, run, start, end));
        applied.stored += new;
        applied.known += u64::from(end - start) - new;
    }

    /// Has a lane hold a span of a run; answers how many blocks it did not hold.
    pub(crate) fn cover(&mut self, lane: LaneId, run: RunId, start: u32, end: u32) -> u32 {
        let run = self.forest.run_mut(run);
        let new = run.coverage.cover(lane, start, end, run.len);
        run.mark_used();
        self.lanes[lane.0 as usize].held += u64::from(new);
        new
    }

    /// A block that the lane calls otherwise than others do, or did.
    fn hold_renamed(
        &mut self,
        lane: LaneId,
        place: Place,
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
            names.add_alias(name, block, was_held);
            true
        };
        *(if is_new {
            &mut applied.stored
        } else {
            &mut applied.known
        }) += 1;
    }
}

#[cfg(test)]
mod tests;
