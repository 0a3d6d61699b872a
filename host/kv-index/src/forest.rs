//! All blocks, as runs: found by the prefix they end, or by the name that engines gave them.
//!
//! It must not know holders beyond what a run's coverage says, nor events.

use routing::EngineBlockHash;

use crate::extent::{BlockId, EXTENT, ExtentId, Extents};
use crate::run::{LONGEST_RUN, Run, RunId, Runs};
use crate::table::{HashesOf, IdTable, MAX_ID};

/// A block's place in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) run: RunId,
    pub(crate) at: u32,
}

/// Runs by their first block.
struct Heads<'a> {
    runs: &'a Runs,
    extents: &'a Extents,
    /// Not in the table yet.
    new: Option<RunId>,
}

impl HashesOf for Heads<'_> {
    fn tell(&self, id: u32, to: &mut dyn FnMut(u64)) {
        if let Some(&first) = self.runs.find(RunId(id)).and_then(|run| run.extents.first())
            && Some(RunId(id)) != self.new
        {
            to(self.extents.get(first).blocks.content[0]);
        }
    }

    fn end(&self) -> u32 {
        self.runs.end()
    }
}

impl HashesOf for Extents {
    fn tell(&self, id: u32, to: &mut dyn FnMut(u64)) {
        if let Some(extent) = self.find(ExtentId(id)) {
            (0..EXTENT).filter_map(|place| extent.name(place)).for_each(to);
        }
    }

    fn end(&self) -> u32 {
        Extents::end(self)
    }
}

/// There are as many runs or blocks as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// The blocks.
#[derive(Debug)]
pub(crate) struct Forest {
    extents: Extents,
    runs: Runs,
    /// Runs by the content of their first block.
    heads: IdTable,
    /// Extents by the names of their blocks.
    names: IdTable,
    blocks: usize,
    /// Names beyond the first of several blocks that share one. Honest engines' hashes never do; those that count do.
    shared_names: usize,
}

impl Forest {
    pub(crate) fn new(max_blocks: usize) -> Self {
        Self {
            extents: Extents::default(),
            runs: Runs::default(),
            heads: IdTable::new(max_blocks),
            names: IdTable::new(max_blocks),
            blocks: 0,
            shared_names: 0,
        }
    }

    /// Blocks kept, whether anyone still holds them or not.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(crate) fn run(&self, id: RunId) -> &Run {
        self.runs.get(id)
    }

    pub(crate) fn run_mut(&mut self, id: RunId) -> &mut Run {
        self.runs.get_mut(id)
    }

    /// A run that may be gone, to be written.
    pub(crate) fn find_run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.find_mut(id)
    }

    /// Gives back memory of the tables that what is left does not need, a little at a time; returns whether there is more.
    pub(crate) fn tend(&mut self) -> bool {
        let Self {
            heads,
            names,
            runs,
            extents,
            ..
        } = self;
        let new = None;
        heads.tend(&Heads { runs, extents, new }) || names.tend(extents)
    }

    /// Whether several blocks have one name.
    pub(crate) fn has_shared_names(&self) -> bool {
        self.shared_names > 0
    }

    /// What a run has besides is not counted, which would take long, but taken for what a short one has.
    pub(crate) fn bytes(&self) -> usize {
        const RUN: usize = 48;
        let runs = self.runs.bytes() + self.runs.count() * RUN;
        self.extents.bytes() + runs + self.heads.bytes() + self.names.bytes()
    }

    pub(crate) fn block(&self, place: Place) -> BlockId {
        self.block_of(self.run(place.run), place.at)
    }

    pub(crate) fn block_of(&self, run: &Run, at: u32) -> BlockId {
        run.extents[at as usize / EXTENT].block(at as usize % EXTENT)
    }

    pub(crate) fn place(&self, block: BlockId) -> Place {
        let owner = self.extents.get(block.extent()).owner;
        Place {
            run: owner.run,
            at: u32::from(owner.ordinal) * EXTENT as u32 + block.place() as u32,
        }
    }

    /// The prefix that a block of a run ends.
    pub(crate) fn content(&self, run: &Run, at: u32) -> u64 {
        self.extents.get(run.extents[at as usize / EXTENT]).blocks.content[at as usize % EXTENT]
    }

    /// What engines call a block; none where it is only expected.
    pub(crate) fn name(&self, run: &Run, at: u32) -> Option<u64> {
        self.extents
            .get(run.extents[at as usize / EXTENT])
            .name(at as usize % EXTENT)
    }

    /// How many of a run's blocks from `at` on are these; 1 at least, as the caller knows the first to be.
    pub(crate) fn common(&self, run: &Run, at: u32, contents: &[u64]) -> u32 {
        let is = |more: u32| self.content(run, at + more) == contents[more as usize];
        let last = contents.len() as u32 - 1;
        if is(last) {
            return last + 1;
        }
        // Equal hashes mean equal prefixes, so that where the two part can be bisected.
        let (mut same, mut other) = (0, last);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            *(if is(middle) { &mut same } else { &mut other }) = middle;
        }
        same + 1
    }

    /// How many of a run's blocks from `at` on have these contents and shared names.
    pub(crate) fn common_named(
        &self,
        run: &Run,
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

    /// The run that starts with this prefix's last block.
    pub(crate) fn head(&self, content: u64) -> Option<RunId> {
        self.heads.find(content, |id| {
            let run = self.runs.find(RunId(id))?;
            (run.len > 0 && self.content(run, 0) == content).then_some(RunId(id))
        })
    }

    /// The first answer that `accept` gives for a block with this name.
    pub(crate) fn find_named<R>(&self, name: u64, mut accept: impl FnMut(BlockId) -> Option<R>) -> Option<R> {
        self.names.find(name, |id| {
            let extent_id = ExtentId(id);
            let extent = self.extents.find(extent_id)?;
            extent
                .places_named(name)
                .find_map(|place| accept(extent_id.block(place)))
        })
    }

    /// Whether another block has this name.
    pub(crate) fn has_namesake(&self, name: u64, block: BlockId) -> bool {
        let other = |other| (other != block).then_some(());
        self.find_named(name, other).is_some()
    }

    /// Other blocks with this name, at most so many.
    pub(crate) fn namesakes(&self, name: u64, block: BlockId, most: usize) -> Vec<BlockId> {
        let mut found = Vec::new();
        self.find_named(name, |other| {
            // While the table grows, some are found twice.
            if other != block && !found.contains(&other) {
                found.push(other);
            }
            (found.len() >= most).then_some(())
        });
        found
    }

    /// Brings near what [`Forest::head`] will read.
    pub(crate) fn touch_head(&self, content: u64) -> u32 {
        self.heads.touch(content)
    }

    /// Brings near what [`Forest::set_name`] will read.
    pub(crate) fn touch_name(&self, name: u64) -> u32 {
        self.names.touch(name)
    }

    /// A new run of one block, which follows the prefix `parent` if any.
    pub(crate) fn start(&mut self, content: u64, parent: Option<u64>) -> Result<RunId, Full> {
        if self.runs.count() + 2 >= MAX_ID as usize {
            return Err(Full);
        }
        let run = self.runs.take();
        self.runs.get_mut(run).parent = parent;
        if let Err(full) = self.append(run, content) {
            self.runs.give_back(run);
            return Err(full);
        }
        let Self {
            heads, runs, extents, ..
        } = self;
        heads.insert(
            content,
            run.0,
            &Heads {
                runs,
                extents,
                new: Some(run),
            },
        );
        Ok(run)
    }

    /// One more block at a run's end. Who held the whole run holds all but that now.
    pub(crate) fn append(&mut self, id: RunId, content: u64) -> Result<u32, Full> {
        let run = self.runs.get_mut(id);
        let at = run.len;
        if at >= LONGEST_RUN {
            return Err(Full);
        }
        if (at as usize).is_multiple_of(EXTENT) {
            let ordinal = (at as usize / EXTENT) as u16;
            run.extents.push(self.extents.take(id, ordinal).ok_or(Full)?);
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

    /// Gives a name to a block that has none. `is_shared`: whether another block has it too.
    pub(crate) fn set_name(&mut self, block: BlockId, name: u64, is_shared: bool) {
        self.shared_names += usize::from(is_shared);
        self.names.insert(name, block.extent().0, &self.extents);
        let (blocks, owner) = self.extents.get_mut(block.extent());
        blocks.engine[block.place()] = name;
        owner.named |= 1 << block.place();
    }

    /// Forgets a block's name.
    pub(crate) fn drop_name(&mut self, place: Place) {
        let block = self.block(place);
        let (blocks, owner) = self.extents.get_mut(block.extent());
        let name = blocks.engine[block.place()];
        owner.named &= !(1 << block.place());
        self.names.remove(name, block.extent().0);
        self.unshare(name);
    }

    /// A block with this name is gone.
    fn unshare(&mut self, name: u64) {
        if self.shared_names > 0 && self.find_named(name, |_| Some(())).is_some() {
            self.shared_names -= 1;
        }
    }

    /// Takes away a run's blocks from `to` on, which nobody holds; the run too if none are left.
    pub(crate) fn truncate(&mut self, id: RunId, to: u32) {
        let len = self.run(id).len;
        if to >= len {
            return;
        }
        if to == 0 {
            let content = self.content(self.run(id), 0);
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

    /// Forgets the names of an extent's blocks from place `from` on.
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
