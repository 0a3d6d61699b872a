//! Which lanes hold which blocks of one run.
//!
//! Engines evict tail first, so that nearly every holder holds a run whole or its first blocks. Both are kept compactly;
//! whatever else is held is an island. A lane is in one of `whole` and `prefixes`, or in none, and may have islands
//! besides; blocks of a lane never overlap or touch across these.

use crate::lanes::{LaneBits, LaneId, LaneSet};

/// The first `end` blocks, not all of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) lane: LaneId,
    pub(crate) end: u32,
}

/// The blocks `start..end`, with `start` above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Island {
    lane: LaneId,
    start: u32,
    end: u32,
}

/// Who holds what of a run. Its length is the run's to know, and every call is told.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) whole: LaneSet,
    /// By lane.
    pub(crate) prefixes: Vec<Prefix>,
    /// By lane, then start.
    islands: Vec<Island>,
}

impl Coverage {
    /// Where the lane's blocks from the first one on end.
    pub(crate) fn prefix_end(&self, lane: LaneId, len: u32) -> u32 {
        if self.whole.contains(lane) {
            return len;
        }
        self.prefix_at(lane).map_or(0, |at| self.prefixes[at].end)
    }

    /// Where the lane's blocks from `start` on end; `start` where it does not hold that one.
    pub(crate) fn end_from(&self, lane: LaneId, start: u32, len: u32) -> u32 {
        let end = self.prefix_end(lane, len);
        if start < end {
            return end;
        }
        let island = self.islands_of(lane).iter().find(|island| start < island.end);
        island
            .filter(|island| island.start <= start)
            .map_or(start, |island| island.end)
    }

    pub(crate) fn covers(&self, lane: LaneId, at: u32, len: u32) -> bool {
        self.end_from(lane, at, len) > at
    }

    /// All that the lane holds, in order.
    pub(crate) fn spans(&self, lane: LaneId, len: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let prefix = self.prefix_end(lane, len);
        let islands = self
            .islands_of(lane)
            .iter()
            .map(|island| (island.start, island.end));
        (prefix > 0).then_some((0, prefix)).into_iter().chain(islands)
    }

    /// Takes `start..end` to be held; answers how many blocks were not held before.
    pub(crate) fn cover(&mut self, lane: LaneId, start: u32, end: u32, len: u32) -> u32 {
        let prefix = self.prefix_end(lane, len);
        if end <= prefix || start >= end {
            return 0;
        }
        let mut span = (start, end);
        let mut known = 0;
        if start <= prefix {
            known += prefix - start;
            span.0 = 0;
        }
        let first = self
            .islands
            .partition_point(|island| (island.lane, island.end) < (lane, start));
        let mut last = first;
        while let Some(island) = self.islands.get(last)
            && island.lane == lane
            && island.start <= end
        {
            known += island.end.min(end).saturating_sub(island.start.max(start));
            span = (span.0.min(island.start), span.1.max(island.end));
            last += 1;
        }
        self.islands.drain(first..last);
        match span {
            (0, end) => self.set_prefix(lane, end, len),
            (start, end) => self.islands.insert(first, Island { lane, start, end }),
        }
        end - start - known
    }

    /// Takes block `at` not to be held; false if it was not.
    pub(crate) fn uncover(&mut self, lane: LaneId, at: u32, len: u32) -> bool {
        let prefix = self.prefix_end(lane, len);
        if at < prefix {
            self.set_prefix(lane, at, len);
            self.insert_island(lane, at + 1, prefix);
            return true;
        }
        let found = self
            .islands
            .iter()
            .position(|island| island.lane == lane && island.start <= at && at < island.end);
        let Some(found) = found else { return false };
        let Island { start, end, .. } = self.islands.remove(found);
        self.insert_island(lane, start, at);
        self.insert_island(lane, at + 1, end);
        true
    }

    /// Forgets a lane; answers how many blocks it held.
    pub(crate) fn forget(&mut self, lane: LaneId, len: u32) -> u32 {
        let held = self.spans(lane, len).map(|(start, end)| end - start).sum();
        if held > 0 {
            self.set_prefix(lane, 0, len);
            self.islands.retain(|island| island.lane != lane);
        }
        held
    }

    /// Forgets several lanes at once.
    pub(crate) fn forget_all(&mut self, lanes: &LaneBits) {
        for lane in self.whole.to_vec() {
            if lanes.contains(lane) {
                self.whole.remove(lane);
            }
        }
        self.prefixes.retain(|prefix| !lanes.contains(prefix.lane));
        self.islands.retain(|island| !lanes.contains(island.lane));
    }

    /// Every lane that holds anything, some more than once.
    pub(crate) fn lanes(&self) -> Vec<LaneId> {
        let mut lanes = self.whole.to_vec();
        lanes.extend(self.prefixes.iter().map(|prefix| prefix.lane));
        lanes.extend(self.islands.iter().map(|island| island.lane));
        lanes
    }

    /// Where the last block that anyone holds ends.
    pub(crate) fn end(&self, len: u32) -> u32 {
        if !self.whole.is_empty() {
            return len;
        }
        let prefixes = self.prefixes.iter().map(|prefix| prefix.end).max();
        let islands = self.islands.iter().map(|island| island.end).max();
        prefixes.max(islands).unwrap_or(0)
    }

    /// How far the first blocks go that any of `among` holds.
    pub(crate) fn reach(&self, among: &LaneBits, scratch: &mut LaneBits, len: u32) -> u32 {
        self.whole.intersect(among, scratch);
        if !scratch.is_empty() {
            return len;
        }
        let held = self.prefixes.iter().filter(|prefix| among.contains(prefix.lane));
        held.map(|prefix| prefix.end).max().unwrap_or(0)
    }

    /// The run's length is another now; no block that is gone was held.
    pub(crate) fn resize(&mut self, from: u32, to: u32) {
        if to > from {
            for lane in self.whole.to_vec() {
                self.whole.remove(lane);
                self.set_prefix(lane, from, to);
            }
        } else {
            let all = |prefix: &Prefix| prefix.end == to;
            for lane in self
                .prefixes
                .iter()
                .copied()
                .filter(all)
                .map(|prefix| prefix.lane)
            {
                self.whole.insert(lane);
            }
            self.prefixes.retain(|prefix| prefix.end != to);
        }
    }

    fn set_prefix(&mut self, lane: LaneId, end: u32, len: u32) {
        if end == len && len > 0 {
            if let Some(at) = self.prefix_at(lane) {
                self.prefixes.remove(at);
            }
            if !self.whole.contains(lane) {
                self.whole.insert(lane);
            }
            return;
        }
        self.whole.remove(lane);
        match (
            self.prefixes.binary_search_by_key(&lane, |prefix| prefix.lane),
            end,
        ) {
            (Ok(at), 0) => {
                self.prefixes.remove(at);
            }
            (Ok(at), end) => self.prefixes[at].end = end,
            (Err(_), 0) => {}
            (Err(at), end) => self.prefixes.insert(at, Prefix { lane, end }),
        }
    }

    fn prefix_at(&self, lane: LaneId) -> Option<usize> {
        self.prefixes
            .binary_search_by_key(&lane, |prefix| prefix.lane)
            .ok()
    }

    fn insert_island(&mut self, lane: LaneId, start: u32, end: u32) {
        if start < end {
            let at = self
                .islands
                .partition_point(|island| (island.lane, island.start) < (lane, start));
            self.islands.insert(at, Island { lane, start, end });
        }
    }

    fn islands_of(&self, lane: LaneId) -> &[Island] {
        let first = self.islands.partition_point(|island| island.lane < lane);
        let rest = &self.islands[first..];
        &rest[..rest.partition_point(|island| island.lane == lane)]
    }
}
