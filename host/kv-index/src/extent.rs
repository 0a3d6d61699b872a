//! Block storage: extents of sixteen neighbouring blocks of a run, with two identities each.
//!
//! A block's number is stable while the block is kept. Memory is allocated in slabs, lowest slab first. An empty slab
//! is freed.

use std::collections::BTreeSet;

use crate::run::RunId;
use crate::table::MAX_ID;

/// Blocks per extent.
pub(crate) const EXTENT: usize = 16;
/// Extents per slab.
const SLAB: usize = 256;

/// Number of a kept block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

/// Number of an extent; never 0.
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

/// Identities of sixteen blocks: four cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct ExtentColumns {
    /// Sequence hash of the prefix that ends with each block.
    pub(crate) content: [u64; EXTENT],
    /// Engine hash of each block whose bit in `named` is set.
    pub(crate) engine: [u64; EXTENT],
}

/// Owner of an extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtentOwner {
    pub(crate) run: RunId,
    /// Position among the extents of the run.
    pub(crate) ordinal: u16,
    /// One bit per block.
    pub(crate) named: u16,
}

impl ExtentColumns {
    const EMPTY: Self = Self {
        content: [0; EXTENT],
        engine: [0; EXTENT],
    };
}

impl ExtentOwner {
    const NONE: Self = Self {
        run: RunId(0),
        ordinal: 0,
        named: 0,
    };
}

/// Read access to an extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent<'a> {
    pub(crate) blocks: &'a ExtentColumns,
    pub(crate) owner: &'a ExtentOwner,
}

impl Extent<'_> {
    /// Returns the engine hash of a block.
    pub(crate) fn name(&self, place: usize) -> Option<u64> {
        (self.owner.named >> place & 1 == 1).then(|| self.blocks.engine[place])
    }

    /// Returns the positions of the blocks with this engine hash.
    pub(crate) fn places_named(&self, name: u64) -> impl Iterator<Item = usize> + use<> {
        let equal = |places: u16, (place, &named): (usize, &u64)| places | u16::from(named == name) << place;
        let mut places = self.blocks.engine.iter().enumerate().fold(0, equal);
        // The owner is in another cache line, and most extents that are looked at have no such name.
        if places != 0 {
            places &= self.owner.named;
        }
        (0..EXTENT).filter(move |place| places >> place & 1 == 1)
    }
}

#[derive(Debug)]
struct Slab {
    blocks: Box<[ExtentColumns]>,
    owners: Box<[ExtentOwner]>,
    /// One bit per extent.
    free: [u64; SLAB / 64],
}

/// All extents.
#[derive(Debug, Default)]
pub(crate) struct ExtentTable {
    slabs: Vec<Option<Slab>>,
    /// Slabs that have a free extent or are not allocated.
    with_room: BTreeSet<usize>,
    in_use: usize,
}

impl ExtentTable {
    /// Returns a blank extent, or `None` if all numbers are in use.
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
        slab.owners[place] = ExtentOwner {
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

    /// Returns one more than the highest possible number.
    pub(crate) fn end(&self) -> u32 {
        (self.slabs.len() * SLAB) as u32
    }

    /// Returns an extent, or `None` if its slab is not allocated.
    pub(crate) fn find(&self, id: ExtentId) -> Option<Extent<'_>> {
        let slab = self.slabs.get(id.0 as usize / SLAB)?.as_ref()?;
        Some(Extent {
            blocks: &slab.blocks[id.0 as usize % SLAB],
            owner: &slab.owners[id.0 as usize % SLAB],
        })
    }

    /// Returns an extent in use.
    pub(crate) fn get(&self, id: ExtentId) -> Extent<'_> {
        self.find(id).expect("an extent in use keeps its slab")
    }

    /// Returns an extent in use, for writing.
    pub(crate) fn get_mut(&mut self, id: ExtentId) -> (&mut ExtentColumns, &mut ExtentOwner) {
        let slab = self.slabs[id.0 as usize / SLAB].as_mut();
        let slab = slab.expect("an extent in use keeps its slab");
        let at = id.0 as usize % SLAB;
        (&mut slab.blocks[at], &mut slab.owners[at])
    }

    /// Prefetches the names of an extent. The result only keeps the compiler from removing the reads.
    pub(crate) fn touch_names(&self, id: ExtentId) -> u64 {
        let extent = self.find(id);
        extent.map_or(0, |extent| {
            extent.blocks.engine[0] ^ extent.blocks.engine[EXTENT / 2]
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        let slabs = self.slabs.iter().flatten().count();
        slabs * SLAB * (size_of::<ExtentColumns>() + size_of::<ExtentOwner>())
            + self.slabs.capacity() * size_of::<Option<Slab>>()
    }
}

/// Frees capacity of a list that has become much smaller.
pub(crate) fn shrink<T>(list: &mut Vec<T>) {
    const LEAST: usize = 64;
    if list.capacity() > LEAST.max(list.len() * 4) {
        list.shrink_to(list.len() * 2);
    }
}

impl Slab {
    fn new(is_first: bool) -> Self {
        Self {
            blocks: vec![ExtentColumns::EMPTY; SLAB].into(),
            owners: vec![ExtentOwner::NONE; SLAB].into(),
            free: Self::all_free(is_first),
        }
    }

    /// Number 0 is reserved.
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
        let mut extents = ExtentTable::default();
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
