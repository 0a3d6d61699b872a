//! All blocks as runs, indexed by prefix and by engine hash.
//!
//! This module has no holders beyond a run's coverage, and no events.

use routing::EngineBlockHash;

use crate::extent::{BlockId, EXTENT, ExtentId, ExtentTable};
use crate::run::{BlockRun, LONGEST_RUN, RunId, RunTable};
pub(crate) use crate::table::AHEAD;
use crate::table::{HashesOf, IdTable, MAX_ID};

/// Position of a block: its run and its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) run: RunId,
    pub(crate) at: u32,
}

/// Hash lookup of runs by their first block.
struct RunHeads<'a> {
    runs: &'a RunTable,
    /// A run that is not in the table yet.
    new: Option<RunId>,
}

impl HashesOf for RunHeads<'_> {
    fn report(&self, id: u32, to: &mut dyn FnMut(u64)) {
        if let Some(run) = self.runs.find(RunId(id))
            && run.len > 0
            && Some(RunId(id)) != self.new
        {
            to(run.head);
        }
    }

    fn end(&self) -> u32 {
        self.runs.end()
    }
}

impl HashesOf for ExtentTable {
    fn report(&self, id: u32, to: &mut dyn FnMut(u64)) {
        if let Some(extent) = self.find(ExtentId(id)) {
            (0..EXTENT).filter_map(|place| extent.name(place)).for_each(to);
        }
    }

    fn end(&self) -> u32 {
        ExtentTable::end(self)
    }
}

/// Blocks that the tables do not know, one bit for each of the blocks looked up together. A block that is not among
/// them may be new too.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewBlocks {
    /// No run begins with this content.
    contents: u32,
    /// No block has this name.
    names: u32,
}

/// Knowledge of one block before it is looked up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NewBlock {
    /// No run begins with this content.
    pub(crate) is_no_head: bool,
    /// No block has this name.
    pub(crate) is_new_name: bool,
}

impl NewBlocks {
    pub(crate) fn block(self, at: usize) -> NewBlock {
        NewBlock {
            is_no_head: self.contents >> at & 1 == 1,
            is_new_name: self.names >> at & 1 == 1,
        }
    }
}

/// All numbers of runs or blocks are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumbersExhausted;

/// Storage and lookup tables of all blocks.
#[derive(Debug)]
pub(crate) struct RunForest {
    extents: ExtentTable,
    runs: RunTable,
    /// Runs by the content of their first block.
    heads: IdTable,
    /// Extents by the names of their blocks.
    names: IdTable,
    blocks: usize,
    /// Number of names shared by several blocks, beyond the first block. Content hashes never collide; counting names
    /// do.
    shared_names: usize,
}

impl RunForest {
    pub(crate) fn new(max_blocks: usize) -> Self {
        Self {
            extents: ExtentTable::default(),
            runs: RunTable::default(),
            heads: IdTable::new(max_blocks),
            names: IdTable::new(max_blocks),
            blocks: 0,
            shared_names: 0,
        }
    }

    /// Returns the number of blocks kept, used or not.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn runs(&self) -> &RunTable {
        &self.runs
    }

    pub(crate) fn run(&self, id: RunId) -> &BlockRun {
        self.runs.get(id)
    }

    pub(crate) fn run_mut(&mut self, id: RunId) -> &mut BlockRun {
        self.runs.get_mut(id)
    }

    /// Returns a run for writing, or `None` if it is gone.
    pub(crate) fn find_run_mut(&mut self, id: RunId) -> Option<&mut BlockRun> {
        self.runs.find_mut(id)
    }

    /// Frees memory of oversized tables in small steps. Returns `true` if there is more to do.
    pub(crate) fn gc_step(&mut self) -> bool {
        let Self {
            heads,
            names,
            runs,
            extents,
            ..
        } = self;
        let new = None;
        heads.gc_step(&RunHeads { runs, new }) || names.gc_step(extents)
    }

    /// Returns `true` if several blocks share a name.
    pub(crate) fn has_shared_names(&self) -> bool {
        self.shared_names > 0
    }

    /// Counts the lists of each run as those of a short one: exact counting would take long.
    pub(crate) fn bytes(&self) -> usize {
        const RUN: usize = 48;
        let runs = self.runs.bytes() + self.runs.count() * RUN;
        self.extents.bytes() + runs + self.heads.bytes() + self.names.bytes()
    }

    pub(crate) fn block(&self, place: BlockPosition) -> BlockId {
        self.block_of(self.run(place.run), place.at)
    }

    pub(crate) fn block_of(&self, run: &BlockRun, at: u32) -> BlockId {
        run.extents[at as usize / EXTENT].block(at as usize % EXTENT)
    }

    pub(crate) fn place(&self, block: BlockId) -> BlockPosition {
        let owner = self.extents.get(block.extent()).owner;
        BlockPosition {
            run: owner.run,
            at: u32::from(owner.ordinal) * EXTENT as u32 + block.place() as u32,
        }
    }

    /// Returns the sequence hash of the prefix that ends with a block.
    pub(crate) fn content(&self, run: &BlockRun, at: u32) -> u64 {
        self.extents.get(run.extents[at as usize / EXTENT]).blocks.content[at as usize % EXTENT]
    }

    /// Returns the engine hash of a block; `None` if the block is only predicted.
    pub(crate) fn name(&self, run: &BlockRun, at: u32) -> Option<u64> {
        self.extents
            .get(run.extents[at as usize / EXTENT])
            .name(at as usize % EXTENT)
    }

    /// Returns the number of blocks from `at` on that have these contents. It is at least 1: the caller has checked
    /// the first.
    pub(crate) fn common(&self, run: &BlockRun, at: u32, contents: &[u64]) -> u32 {
        let is = |more: u32| self.content(run, at + more) == contents[more as usize];
        let last = contents.len() as u32 - 1;
        if is(last) {
            return last + 1;
        }
        // Equal hashes mean equal prefixes, so the end of the common part is found by bisection.
        let (mut same, mut other) = (0, last);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            *(if is(middle) { &mut same } else { &mut other }) = middle;
        }
        same + 1
    }

    /// Returns the number of blocks from `at` on that have these contents and shared names.
    pub(crate) fn common_named(
        &self,
        run: &BlockRun,
        at: u32,
        contents: &[u64],
        names: &[EngineBlockHash],
    ) -> u32 {
        let mut same = 0;
        let mut at = at as usize;
        while same < contents.len() && at < run.len as usize {
            let extent = self.extents.get(run.extents[at / EXTENT]);
            let end = (EXTENT.min(run.len as usize - at / EXTENT * EXTENT))
                .min(at % EXTENT + contents.len() - same);
            for place in at % EXTENT..end {
                if extent.blocks.content[place] != contents[same] || extent.name(place) != Some(names[same].0)
                {
                    return same as u32;
                }
                same += 1;
                at += 1;
            }
        }
        same as u32
    }

    /// Returns the run whose first block ends this prefix.
    pub(crate) fn head(&self, content: u64) -> Option<RunId> {
        self.heads.find(content, |id| {
            let run = self.runs.find(RunId(id))?;
            (run.len > 0 && run.head == content).then_some(RunId(id))
        })
    }

    /// Returns the first result of `accept` for a block with this name.
    pub(crate) fn find_named<R>(&self, name: u64, mut accept: impl FnMut(BlockId) -> Option<R>) -> Option<R> {
        self.names.find(name, |id| {
            let extent_id = ExtentId(id);
            let extent = self.extents.find(extent_id)?;
            extent
                .places_named(name)
                .find_map(|place| accept(extent_id.block(place)))
        })
    }

    /// Returns `true` if another block has this name.
    pub(crate) fn has_namesake(&self, name: u64, block: BlockId) -> bool {
        let other = |other| (other != block).then_some(());
        self.find_named(name, other).is_some()
    }

    /// Returns at most `most` other blocks with this name.
    pub(crate) fn namesakes(&self, name: u64, block: BlockId, most: usize) -> Vec<BlockId> {
        let mut found = Vec::new();
        self.find_named(name, |other| {
            // While the table grows, a lookup may find a block twice.
            if other != block && !found.contains(&other) {
                found.push(other);
            }
            (found.len() >= most).then_some(())
        });
        found
    }

    /// Reads the tables for the next [`AHEAD`] blocks of a store together, so that the cache misses overlap.
    pub(crate) fn read_ahead(&self, contents: &[u64], names: &[EngineBlockHash]) -> NewBlocks {
        let heads = self.heads.lines_ahead(contents.iter().copied());
        let names = self.names.lines_ahead(names.iter().map(|name| name.0));
        std::hint::black_box(heads.touch().wrapping_add(names.touch()));
        let new = NewBlocks {
            contents: heads.absent(),
            names: names.absent(),
        };
        let mut near = 0;
        heads.other_ids(new.contents, |id| {
            near ^= self.runs.find(RunId(id)).map_or(0, |run| run.head)
        });
        names.other_ids(new.names, |id| near ^= self.extents.touch_names(ExtentId(id)));
        std::hint::black_box(near);
        new
    }

    /// Creates a run of one block after the prefix `parent`.
    pub(crate) fn start(&mut self, content: u64, parent: Option<u64>) -> Result<RunId, NumbersExhausted> {
        if self.runs.count() + 2 >= MAX_ID as usize {
            return Err(NumbersExhausted);
        }
        let run = self.runs.take();
        let new = self.runs.get_mut(run);
        (new.parent, new.head) = (parent, content);
        if let Err(full) = self.append(run, content) {
            self.runs.give_back(run);
            return Err(full);
        }
        let (runs, new) = (&self.runs, Some(run));
        self.heads.insert(content, run.0, &RunHeads { runs, new });
        Ok(run)
    }

    /// Appends a block to a run. Lanes that held the whole run now hold all but that block.
    pub(crate) fn append(&mut self, id: RunId, content: u64) -> Result<u32, NumbersExhausted> {
        let run = self.runs.get_mut(id);
        let at = run.len;
        if at >= LONGEST_RUN {
            return Err(NumbersExhausted);
        }
        if (at as usize).is_multiple_of(EXTENT) {
            let ordinal = (at as usize / EXTENT) as u16;
            run.extents
                .push(self.extents.take(id, ordinal).ok_or(NumbersExhausted)?);
        }
        let (blocks, _) = self.extents.get_mut(run.extents[at as usize / EXTENT]);
        blocks.content[at as usize % EXTENT] = content;
        run.len += 1;
        if at > 0 {
            run.coverage.resize(at, at + 1);
        }
        self.blocks += 1;
        Ok(at)
    }

    /// Names an unnamed block. `is_shared`: another block has the same name.
    pub(crate) fn set_name(&mut self, block: BlockId, name: u64, is_shared: bool) {
        self.shared_names += usize::from(is_shared);
        self.names.insert(name, block.extent().0, &self.extents);
        let (blocks, owner) = self.extents.get_mut(block.extent());
        blocks.engine[block.place()] = name;
        owner.named |= 1 << block.place();
    }

    /// Removes a block's name.
    pub(crate) fn drop_name(&mut self, place: BlockPosition) {
        let block = self.block(place);
        let (blocks, owner) = self.extents.get_mut(block.extent());
        let name = blocks.engine[block.place()];
        owner.named &= !(1 << block.place());
        self.names.remove(name, block.extent().0);
        self.unshare(name);
    }

    /// Updates the count after a block with this name is removed.
    fn unshare(&mut self, name: u64) {
        if self.shared_names > 0 && self.find_named(name, |_| Some(())).is_some() {
            self.shared_names -= 1;
        }
    }

    /// Removes a run's unused blocks from `to` on; also the run if none are left.
    pub(crate) fn truncate(&mut self, id: RunId, to: u32) {
        let len = self.run(id).len;
        if to >= len {
            return;
        }
        if to == 0 {
            let content = self.run(id).head;
            self.heads.remove(content, id.0);
        }
        for ordinal in to as usize / EXTENT..(len as usize).div_ceil(EXTENT) {
            let keep = (to as usize).saturating_sub(ordinal * EXTENT).min(EXTENT);
            self.drop_names(id, ordinal, keep);
        }
        let kept = (to as usize).div_ceil(EXTENT);
        let run = self.runs.get_mut(id);
        for extent in run.extents.drain(kept..) {
            self.extents.give_back(extent);
        }
        run.len = to;
        run.coverage.resize(len, to);
        self.blocks -= (len - to) as usize;
        if to == 0 {
            self.runs.give_back(id);
        }
    }

    /// Removes the names of an extent's blocks from place `from` on.
    fn drop_names(&mut self, id: RunId, ordinal: usize, from: usize) {
        let extent_id = self.runs.get(id).extents[ordinal];
        let extent = self.extents.get(extent_id);
        let names: Vec<(usize, u64)> = (from..EXTENT)
            .filter_map(|place| Some((place, extent.name(place)?)))
            .collect();
        let near = |near: u32, (_, name): &(usize, u64)| near.wrapping_add(self.names.touch(*name));
        std::hint::black_box(names.iter().fold(0, near));
        for (place, name) in names {
            self.extents.get_mut(extent_id).1.named &= !(1 << place);
            self.names.remove(name, extent_id.0);
            self.unshare(name);
        }
    }
}
