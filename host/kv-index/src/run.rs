//! Runs: chains of blocks without a branch, as long as they were stored. What continues a prefix elsewhere than at its
//! run's end starts a run of its own.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::coverage::Coverage;
use crate::extent::{EXTENT, ExtentId, shrink};
use crate::lanes::LaneId;

/// Names a run; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RunId(pub(crate) u32);

/// Most blocks of one run: extents number their place with 16 bits.
pub(crate) const LONGEST_RUN: u32 = EXTENT as u32 * (u16::MAX as u32 + 1);

/// One chain of blocks: two cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Run {
    pub(crate) extents: Vec<ExtentId>,
    pub(crate) len: u32,
    /// The prefix that its first block follows.
    pub(crate) parent: Option<u64>,
    pub(crate) coverage: Coverage,
    /// Asked for or stored since the eviction hand came by.
    used: AtomicBool,
    /// Waits to have its end trimmed.
    pub(crate) is_queued: bool,
}

impl Run {
    pub(crate) fn covers(&self, lane: LaneId, at: u32) -> bool {
        at < self.len && self.coverage.covers(lane, at, self.len)
    }

    /// Readers share the flag: it is only written where it changes.
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    /// Whether it was used since this was asked last.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }
}

/// Runs of one segment: no addition moves older ones.
const SEGMENT: usize = 1024;

/// A stretch of numbers, and which of them are free.
#[derive(Debug)]
struct Segment {
    runs: Box<[Run]>,
    /// One bit a run.
    free: [u64; SEGMENT / 64],
}

/// All runs. The lowest free number is taken first, and a segment without runs is given back.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    segments: Vec<Option<Segment>>,
    /// Segments with a free run, or none at all.
    with_room: BTreeSet<usize>,
    in_use: usize,
}

impl Runs {
    /// A run without blocks.
    pub(crate) fn take(&mut self) -> RunId {
        let at = self.with_room.first().copied().unwrap_or(self.segments.len());
        if at == self.segments.len() {
            self.segments.push(None);
            self.with_room.insert(at);
        }
        let segment = self.segments[at].get_or_insert_with(|| Segment::new(at == 0));
        let place = segment.take_first();
        if segment.free == [0; SEGMENT / 64] {
            self.with_room.remove(&at);
        }
        self.in_use += 1;
        RunId((at * SEGMENT + place) as u32)
    }

    /// Gives back a run without blocks.
    pub(crate) fn give_back(&mut self, id: RunId) {
        let (at, place) = (id.0 as usize / SEGMENT, id.0 as usize % SEGMENT);
        let Some(segment) = self.segments[at].as_mut() else {
            return;
        };
        segment.runs[place] = Run {
            is_queued: segment.runs[place].is_queued,
            ..Run::default()
        };
        segment.free[place / 64] |= 1 << (place % 64);
        self.in_use -= 1;
        self.with_room.insert(at);
        if segment.free == Segment::all_free(at == 0) {
            self.segments[at] = None;
            while self.segments.pop_if(|last| last.is_none()).is_some() {
                self.with_room.remove(&self.segments.len());
            }
            shrink(&mut self.segments);
        }
    }

    /// One more than the highest number in use.
    pub(crate) fn end(&self) -> u32 {
        let Some(Some(last)) = self.segments.last() else {
            return 0;
        };
        ((self.segments.len() - 1) * SEGMENT + last.end()) as u32
    }

    pub(crate) fn count(&self) -> usize {
        self.in_use
    }

    /// A run, unless its segment is not there.
    pub(crate) fn find(&self, id: RunId) -> Option<&Run> {
        let segment = self.segments.get(id.0 as usize / SEGMENT)?.as_ref()?;
        Some(&segment.runs[id.0 as usize % SEGMENT])
    }

    /// The same, to be written.
    pub(crate) fn find_mut(&mut self, id: RunId) -> Option<&mut Run> {
        let segment = self.segments.get_mut(id.0 as usize / SEGMENT)?.as_mut()?;
        Some(&mut segment.runs[id.0 as usize % SEGMENT])
    }

    /// A run in use.
    pub(crate) fn get(&self, id: RunId) -> &Run {
        self.find(id).expect("a run in use keeps its segment")
    }

    /// A run in use, to be written.
    pub(crate) fn get_mut(&mut self, id: RunId) -> &mut Run {
        self.find_mut(id).expect("a run in use keeps its segment")
    }

    /// Without what each run has besides.
    pub(crate) fn bytes(&self) -> usize {
        let segments = self.segments.iter().flatten().count();
        segments * SEGMENT * size_of::<Run>() + self.segments.capacity() * size_of::<Option<Segment>>()
    }
}

impl Segment {
    fn new(is_first: bool) -> Self {
        Self {
            runs: std::iter::repeat_with(Run::default).take(SEGMENT).collect(),
            free: Self::all_free(is_first),
        }
    }

    /// Number 0 is no run.
    fn all_free(is_first: bool) -> [u64; SEGMENT / 64] {
        let mut free = [u64::MAX; SEGMENT / 64];
        free[0] -= u64::from(is_first);
        free
    }

    /// One more than the last number in use.
    fn end(&self) -> usize {
        let last = self.free.iter().rposition(|&word| word != u64::MAX);
        last.map_or(0, |at| at * 64 + 64 - self.free[at].leading_ones() as usize)
    }

    /// Takes the lowest number that is free; the caller knows that there is one.
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
        let mut runs = Runs::default();
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
