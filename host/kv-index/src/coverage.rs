//! Coverage of one run: the lanes that hold its blocks.
//!
//! Engines evict the tail first, so nearly every holder has the whole run or a prefix of it. Both are stored
//! compactly. Other spans are islands. A lane is in `whole`, in `prefixes` or in neither, and may have islands in
//! addition. The spans of a lane never overlap or touch.

use crate::lanes::{LaneBits, LaneId, LaneSet};

/// Prefix of the run: its first `end` blocks, but not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefixSpan {
    pub(crate) lane: LaneId,
    pub(crate) end: u32,
}

/// The blocks `start..end`, with `start` above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IslandSpan {
    lane: LaneId,
    start: u32,
    end: u32,
}

/// Holders of a run's blocks. The run has its own length and passes it to each call.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) whole: LaneSet,
    /// Sorted by lane.
    pub(crate) prefixes: Vec<PrefixSpan>,
    /// Sorted by lane, then start.
    islands: Vec<IslandSpan>,
}

impl Coverage {
    /// Returns the end of the lane's prefix.
    pub(crate) fn prefix_end(&self, lane: LaneId, len: u32) -> u32 {
        if self.whole.contains(lane) {
            return len;
        }
        self.prefix_at(lane).map_or(0, |at| self.prefixes[at].end)
    }

    /// Returns the end of the lane's span that contains `start`, or `start` if none does.
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

    /// Returns the lane's spans in order.
    pub(crate) fn spans(&self, lane: LaneId, len: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let prefix = self.prefix_end(lane, len);
        let islands = self
            .islands_of(lane)
            .iter()
            .map(|island| (island.start, island.end));
        (prefix > 0).then_some((0, prefix)).into_iter().chain(islands)
    }

    /// Adds `start..end` to a lane. Returns the number of blocks it did not hold before.
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
            (start, end) => self.islands.insert(first, IslandSpan { lane, start, end }),
        }
        end - start - known
    }

    /// Removes block `at` from a lane. Returns `false` if the lane did not hold it.
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
        let IslandSpan { start, end, .. } = self.islands.remove(found);
        self.insert_island(lane, start, at);
        self.insert_island(lane, at + 1, end);
        true
    }

    /// Removes a lane. Returns the number of blocks it held.
    pub(crate) fn forget(&mut self, lane: LaneId, len: u32) -> u32 {
        let held = self.spans(lane, len).map(|(start, end)| end - start).sum();
        if held > 0 {
            self.set_prefix(lane, 0, len);
            self.islands.retain(|island| island.lane != lane);
        }
        held
    }

    /// Removes several lanes at once.
    pub(crate) fn forget_all(&mut self, lanes: &LaneBits) {
        for lane in self.whole.to_vec() {
            if lanes.contains(lane) {
                self.whole.remove(lane);
            }
        }
        self.prefixes.retain(|prefix| !lanes.contains(prefix.lane));
        self.islands.retain(|island| !lanes.contains(island.lane));
    }

    /// Returns every lane that holds anything, some more than once.
    pub(crate) fn lanes(&self) -> Vec<LaneId> {
        let mut lanes = self.whole.to_vec();
        lanes.extend(self.prefixes.iter().map(|prefix| prefix.lane));
        lanes.extend(self.islands.iter().map(|island| island.lane));
        lanes
    }

    /// Returns the end of the last held block.
    pub(crate) fn end(&self, len: u32) -> u32 {
        if !self.whole.is_empty() {
            return len;
        }
        let prefixes = self.prefixes.iter().map(|prefix| prefix.end).max();
        let islands = self.islands.iter().map(|island| island.end).max();
        prefixes.max(islands).unwrap_or(0)
    }

    /// Returns the length of the longest prefix that a lane of `among` holds.
    pub(crate) fn reach(&self, among: &LaneBits, scratch: &mut LaneBits, len: u32) -> u32 {
        self.whole.intersect(among, scratch);
        if !scratch.is_empty() {
            return len;
        }
        let held = self.prefixes.iter().filter(|prefix| among.contains(prefix.lane));
        held.map(|prefix| prefix.end).max().unwrap_or(0)
    }

    /// Adapts to a new length of the run. Removed blocks are not held.
    pub(crate) fn resize(&mut self, from: u32, to: u32) {
        if to > from {
            for lane in self.whole.to_vec() {
                self.whole.remove(lane);
                self.set_prefix(lane, from, to);
            }
        } else {
            let all = |prefix: &PrefixSpan| prefix.end == to;
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
            (Err(at), end) => self.prefixes.insert(at, PrefixSpan { lane, end }),
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
            self.islands.insert(at, IslandSpan { lane, start, end });
        }
    }

    fn islands_of(&self, lane: LaneId) -> &[IslandSpan] {
        let first = self.islands.partition_point(|island| island.lane < lane);
        let rest = &self.islands[first..];
        &rest[..rest.partition_point(|island| island.lane == lane)]
    }
}
