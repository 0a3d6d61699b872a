//! Where blocks are kept: sixteen neighbours of a run at a time, each with its two identities.
//!
//! A block's number stays the same for as long as it is kept. Memory is taken a slab at a time, lowest slab first, and a
//! slab that is empty is given back.

use std::collections::BTreeSet;

use crate::run::RunId;
use crate::table::MAX_ID;

/// Blocks of one extent.
pub(crate) const EXTENT: usize = 16;
/// Extents of one slab.
const SLAB: usize = 256;

/// A kept block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

/// An extent; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtentId(pub(crate) u32);

impl BlockId {
    pub(crate) fn extent(self) -> ExtentId {
        ExtentId(self.0 / EXTENT as u32)
    }

    pub(crate) fn place(self) -> usize {
        self.0 as usize % EXTENT
    }
}

impl ExtentId {
    pub(crate) fn block(self, place: usize) -> BlockId {
        BlockId(self.0 * EXTENT as u32 + place as u32)
    }
}

/// The identities of sixteen blocks: four cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Columns {
    /// Our identity of the prefix that ends with each block.
    pub(crate) content: [u64; EXTENT],
    /// The engines' name of each, where `named` says so.
    pub(crate) engine: [u64; EXTENT],
}

/// Whose sixteen blocks they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) run: RunId,
    /// Their place among the extents of the run.
    pub(crate) ordinal: u16,
    /// One bit a block.
    pub(crate) named: u16,
}

impl Columns {
    const EMPTY: Self = Self {
        content: [0; EXTENT],
        engine: [0; EXTENT],
    };
}

impl Owner {
    const NOBODY: Self = Self {
        run: RunId(0),
        ordinal: 0,
        named: 0,
    };
}

/// An extent to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent<'a> {
    pub(crate) blocks: &'a Columns,
    pub(crate) owner: &'a Owner,
}

impl Extent<'_> {
    /// The engines' name of a block.
    pub(crate) fn name(&self, place: usize) -> Option<u64> {
        (self.owner.named >> place & 1 == 1).then(|| self.blocks.engine[place])
    }

    /// The places of the blocks with this name.
    pub(crate) fn places_named(&self, name: u64) -> impl Iterator<Item = usize> + use<> {
        let equal = |places: u16, (place, &named): (usize, &u64)| places | u16::from(named == name) << place;
        let places = self.blocks.engine.iter().enumerate().fold(0, equal) & self.owner.named;
        (0..EXTENT).filter(move |place| places >> place & 1 == 1)
    }
}

#[derive(Debug)]
struct Slab {
    blocks: Box<[Columns]>,
    owners: Box<[Owner]>,
    /// One bit an extent.
    free: [u64; SLAB / 64],
}

/// All extents.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    slabs: Vec<Option<Slab>>,
    /// Slabs with a free extent, or none at all.
    with_room: BTreeSet<usize>,
    in_use: usize,
}

impl Extents {
    /// A blank extent; none when there are as many as numbers.
    pub(crate) fn take(&mut self, run: RunId, ordinal: u16) -> Option<ExtentId> {
        let at = match self.with_room.first() {
            Some(&at) => at,
            None if self.slabs.len() < MAX_ID as usize / SLAB => {
                self.slabs.push(None);
                self.with_room.insert(self.slabs.len() - 1);
                self.slabs.len() - 1
            }
            None => return None,
        };
        let slab = self.slabs[at].get_or_insert_with(|| Slab::new(at == 0));
        let word = slab.free.iter().position(|&word| word != 0)?;
        let place = word * 64 + slab.free[word].trailing_zeros() as usize;
        slab.free[word] &= slab.free[word] - 1;
        slab.owners[place] = Owner {
            run,
            ordinal,
            named: 0,
        };
        if slab.free == [0; SLAB / 64] {
            self.with_room.remove(&at);
        }
        self.in_use += 1;
        Some(ExtentId((at * SLAB + place) as u32))
    }

    pub(crate) fn give_back(&mut self, id: ExtentId) {
        let (at, place) = (id.0 as usize / SLAB, id.0 as usize % SLAB);
        let Some(slab) = &mut self.slabs[at] else { return };
        slab.free[place / 64] |= 1 << (place % 64);
        self.in_use -= 1;
        self.with_room.insert(at);
        if slab.is_empty(at == 0) {
            self.slabs[at] = None;
            while self.slabs.pop_if(|last| last.is_none()).is_some() {
                self.with_room.remove(&self.slabs.len());
            }
            shrink(&mut self.slabs);
        }
    }

    /// One more than the highest number there may be.
    pub(crate) fn end(&self) -> u32 {
        (self.slabs.len() * SLAB) as u32
    }

    /// An extent, unless its slab is not there.
    pub(crate) fn find(&self, id: ExtentId) -> Option<Extent<'_>> {
        let slab = self.slabs.get(id.0 as usize / SLAB)?.as_ref()?;
        Some(Extent {
            blocks: &slab.blocks[id.0 as usize % SLAB],
            owner: &slab.owners[id.0 as usize % SLAB],
        })
    }

    /// An extent in use.
    pub(crate) fn get(&self, id: ExtentId) -> Extent<'_> {
        self.find(id).expect("an extent in use keeps its slab")
    }

    /// An extent in use, to be written.
    pub(crate) fn get_mut(&mut self, id: ExtentId) -> (&mut Columns, &mut Owner) {
        let slab = self.slabs[id.0 as usize / SLAB].as_mut();
        let slab = slab.expect("an extent in use keeps its slab");
        let at = id.0 as usize % SLAB;
        (&mut slab.blocks[at], &mut slab.owners[at])
    }

    pub(crate) fn bytes(&self) -> usize {
        let slabs = self.slabs.iter().flatten().count();
        slabs * SLAB * (size_of::<Columns>() + size_of::<Owner>())
            + self.slabs.capacity() * size_of::<Option<Slab>>()
    }
}

/// Gives back the room of a list that most of is gone of.
pub(crate) fn shrink<T>(list: &mut Vec<T>) {
    const LEAST: usize = 64;
    if list.capacity() > LEAST.max(list.len() * 4) {
        list.shrink_to(list.len() * 2);
    }
}

impl Slab {
    fn new(is_first: bool) -> Self {
        Self {
            blocks: vec![Columns::EMPTY; SLAB].into(),
            owners: vec![Owner::NOBODY; SLAB].into(),
            free: Self::all_free(is_first),
        }
    }

    /// Number 0 is no extent.
    fn all_free(is_first: bool) -> [u64; SLAB / 64] {
        let mut free = [u64::MAX; SLAB / 64];
        free[0] -= u64::from(is_first);
        free
    }

    fn is_empty(&self, is_first: bool) -> bool {
        self.free == Self::all_free(is_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_the_memory_of_a_slab_that_is_empty() {
        let mut extents = Extents::default();
        let ids: Vec<ExtentId> = (0..3 * SLAB).filter_map(|_| extents.take(RunId(1), 0)).collect();
        assert!(ids.iter().all(|id| id.0 != 0));
        let full = extents.bytes();
        for &id in &ids {
            extents.give_back(id);
        }
        assert_eq!(extents.in_use, 0);
        assert!(extents.bytes() < full / 10, "{} of {full} bytes", extents.bytes());
        assert_eq!(extents.end(), 0, "no number is left to be looked at");
        assert_eq!(extents.take(RunId(1), 0), Some(ids[0]), "the lowest comes first");
    }
}
