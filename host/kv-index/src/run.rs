//! Runs: unbranched chains of blocks. A branch elsewhere than at a run's end starts a new run.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::coverage::Coverage;
use crate::extent::{EXTENT, ExtentId, shrink};
use crate::lanes::LaneId;

/// Number of a run; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RunId(pub(crate) u32);

/// Most blocks per run: extents number their place with 16 bits.
pub(crate) const LONGEST_RUN: u32 = EXTENT as u32 * (u16::MAX as u32 + 1);

/// A run: two cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct BlockRun {
    pub(crate) extents: Vec<ExtentId>,
    pub(crate) len: u32,
    /// Sequence hash of the prefix that ends with its first block.
    pub(crate) head: u64,
    /// Sequence hash of the prefix before its first block.
    pub(crate) parent: Option<u64>,
    pub(crate) coverage: Coverage,
    /// Queried or stored since the eviction hand last passed.
    used: AtomicBool,
    /// Queued for trimming.
    pub(crate) is_queued: bool,
}

const _: () = assert!(size_of::<BlockRun>() == 128);

impl BlockRun {
    pub(crate) fn covers(&self, lane: LaneId, at: u32) -> bool {
        at < self.len && self.coverage.covers(lane, at, self.len)
    }

    /// Readers share the flag, so it is written only if it changes.
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Clears the used flag; returns its value.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }
}

/// Runs per segment: additions never move existing runs.
const SEGMENT: usize = 1024;

/// Storage of consecutive numbers, and the free ones among them.
#[derive(Debug)]
struct RunSegment {
    runs: Box<[BlockRun]>,
    /// One bit per run.
    free: [u64; SEGMENT / 64],
}

/// All runs. The lowest free number is used first, and an empty segment is freed.
#[derive(Debug, Default)]
pub(crate) struct RunTable {
    segments: Vec<Option<RunSegment>>,
    /// Segments that have a free run or are not allocated.
    with_room: BTreeSet<usize>,
    in_use: usize,
}

impl RunTable {
    /// Returns the number of a new, empty run.
    pub(crate) fn take(&mut self) -> RunId {
        let at = self.with_room.first().copied().unwrap_or(self.segments.len());
        if at == self.segments.len() {
            self.segments.push(None);
            self.with_room.insert(at);
        }
        let segment = self.segments[at].get_or_insert_with(|| RunSegment::new(at == 0));
        let place = segment.take_first();
        if segment.free == [0; SEGMENT / 64] {
            self.with_room.remove(&at);
        }
        self.in_use += 1;
        RunId((at * SEGMENT + place) as u32)
    }

    /// Frees an empty run.
    pub(crate) fn give_back(&mut self, id: RunId) {
        let (at, place) = (id.0 as usize / SEGMENT, id.0 as usize % SEGMENT);
        let Some(segment) = self.segments[at].as_mut() else {
            return;
        };
        segment.runs[place] = BlockRun {
            is_queued: segment.runs[place].is_queued,
            ..BlockRun::default()
        };
        segment.free[place / 64] |= 1 << (place % 64);
        self.in_use -= 1;
        self.with_room.insert(at);
        if segment.free == RunSegment::all_free(at == 0) {
            self.segments[at] = None;
            while self.segments.pop_if(|last| last.is_none()).is_some() {
                self.with_room.remove(&self.segments.len());
            }
            shrink(&mut self.segments);
        }
    }

    /// Returns one more than the highest number in use.
    pub(crate) fn end(&self) -> u32 {
        let Some(Some(last)) = self.segments.last() else {
            return 0;
        };
        ((self.segments.len() - 1) * SEGMENT + last.end()) as u32
    }

    pub(crate) fn count(&self) -> usize {
        self.in_use
    }

    /// Returns a run, or `None` if its segment is not allocated.
    pub(crate) fn find(&self, id: RunId) -> Option<&BlockRun> {
        let segment = self.segments.get(id.0 as usize / SEGMENT)?.as_ref()?;
        Some(&segment.runs[id.0 as usize % SEGMENT])
    }

    /// Returns a run for writing, or `None`.
    pub(crate) fn find_mut(&mut self, id: RunId) -> Option<&mut BlockRun> {
        let segment = self.segments.get_mut(id.0 as usize / SEGMENT)?.as_mut()?;
        Some(&mut segment.runs[id.0 as usize % SEGMENT])
    }

    /// Returns a run in use.
    pub(crate) fn get(&self, id: RunId) -> &BlockRun {
        self.find(id).expect("a run in use keeps its segment")
    }

    /// Returns a run in use, for writing.
    pub(crate) fn get_mut(&mut self, id: RunId) -> &mut BlockRun {
        self.find_mut(id).expect("a run in use keeps its segment")
    }

    /// Returns the memory without the lists of each run.
    pub(crate) fn bytes(&self) -> usize {
        let segments = self.segments.iter().flatten().count();
        segments * SEGMENT * size_of::<BlockRun>()
            + self.segments.capacity() * size_of::<Option<RunSegment>>()
    }
}

impl RunSegment {
    fn new(is_first: bool) -> Self {
        Self {
            runs: std::iter::repeat_with(BlockRun::default).take(SEGMENT).collect(),
            free: Self::all_free(is_first),
        }
    }

    /// Number 0 is reserved.
    fn all_free(is_first: bool) -> [u64; SEGMENT / 64] {
        let mut free = [u64::MAX; SEGMENT / 64];
        free[0] -= u64::from(is_first);
        free
    }

    /// Returns one more than the last number in use.
    fn end(&self) -> usize {
        let last = self.free.iter().rposition(|&word| word != u64::MAX);
        last.map_or(0, |at| at * 64 + 64 - self.free[at].leading_ones() as usize)
    }

    /// Takes the lowest free number. The caller checks that there is one.
    fn take_first(&mut self) -> usize {
        let word = self.free.iter().position(|&word| word != 0).unwrap_or(0);
        let place = word * 64 + self.free[word].trailing_zeros() as usize;
        self.free[word] &= self.free[word] - 1;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_the_memory_of_a_segment_without_runs() {
        let mut runs = RunTable::default();
        let ids: Vec<RunId> = (0..3 * SEGMENT).map(|_| runs.take()).collect();
        assert!(ids.iter().all(|id| id.0 != 0));
        let full = runs.bytes();
        let (kept, gone) = ids.split_at(2);
        for &id in gone {
            runs.give_back(id);
        }
        assert_eq!((runs.count(), runs.end()), (2, 3));
        assert!(runs.bytes() < full * 2 / 5, "{} of {full} bytes", runs.bytes());
        assert!(runs.find(ids[SEGMENT]).is_none() && runs.find(kept[0]).is_some());
        assert_eq!(runs.take(), gone[0], "the lowest comes first");
    }
}
