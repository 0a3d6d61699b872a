//! Runs: chains of blocks without a branch, as long as they were stored. What continues a prefix elsewhere than at its
//! run's end starts a run of its own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::coverage::Coverage;
use crate::extent::{EXTENT, ExtentId};
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

/// Runs a segment: no addition moves older ones.
const SEGMENT: usize = 1024;

/// All runs.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    segments: Vec<Vec<Run>>,
    free: Vec<RunId>,
}

impl Runs {
    /// A run without blocks.
    pub(crate) fn take(&mut self) -> RunId {
        if let Some(run) = self.free.pop() {
            return run;
        }
        match self.segments.last_mut() {
            Some(last) if last.len() < SEGMENT => last.push(Run::default()),
            _ => {
                let mut segment = Vec::with_capacity(SEGMENT);
                segment.push(Run::default());
                // Number 0 is no run.
                if self.segments.is_empty() {
                    segment.push(Run::default());
                }
                self.segments.push(segment);
            }
        }
        RunId(self.end() - 1)
    }

    /// Gives back a run without blocks.
    pub(crate) fn give_back(&mut self, id: RunId) {
        let is_queued = self.get(id).is_queued;
        *self.get_mut(id) = Run {
            is_queued,
            ..Run::default()
        };
        self.free.push(id);
    }

    /// One more than the highest number.
    pub(crate) fn end(&self) -> u32 {
        self.segments.last().map_or(0, |last| {
            ((self.segments.len() - 1) * SEGMENT + last.len()) as u32
        })
    }

    pub(crate) fn count(&self) -> usize {
        (self.end() as usize).saturating_sub(1 + self.free.len())
    }

    pub(crate) fn get(&self, id: RunId) -> &Run {
        &self.segments[id.0 as usize / SEGMENT][id.0 as usize % SEGMENT]
    }

    pub(crate) fn get_mut(&mut self, id: RunId) -> &mut Run {
        &mut self.segments[id.0 as usize / SEGMENT][id.0 as usize % SEGMENT]
    }

    /// Without what each run has besides.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT * size_of::<Run>() + self.free.capacity() * size_of::<RunId>()
    }
}
