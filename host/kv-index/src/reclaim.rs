//! Garbage collection: frees unused blocks and removed lanes and, at the limit, evicts the least used blocks. It also
//! goes on with joining the objects of stores again.
//!
//! Each change does a small step (as does [`IndexCore::gc_step`] when nothing changes), so no single change takes long.

use std::collections::VecDeque;

use crate::core::IndexCore;
use crate::forest::BlockPosition;
use crate::lanes::LaneBits;
use crate::run::RunId;

/// Unused blocks kept for later changes: evicted blocks are often stored again soon.
const LOOSE_BLOCKS: usize = 4096;
/// Blocks removed from a run's end at a time.
const TRIM: u32 = 64;
/// Trims with every change, which is one of at most [`PART`](crate::count::PART) blocks.
const TRIMS: usize = 2;
/// Runs to examine for eviction before a store is refused.
const TRIES: usize = 1024;

impl IndexCore {
    /// Queues a run that may have unused blocks at its end.
    pub(crate) fn note_loose(&mut self, id: RunId) {
        let run = self.forest.run_mut(id);
        let loose = run.len - run.coverage.end(run.len);
        if loose > 0 {
            self.queue_trim(id, 1);
        }
    }

    fn queue_trim(&mut self, id: RunId, loose: usize) {
        self.loose += loose;
        let run = self.forest.run_mut(id);
        if !run.is_queued {
            run.is_queued = true;
            self.to_trim.push_back(id);
        }
    }

    /// Reclaims from up to `runs` runs. Returns `true` if there is more to do.
    pub(crate) fn gc_step(&mut self, runs: u32) -> bool {
        self.drop_spent_names(TRIM as usize);
        for _ in 0..TRIMS {
            if self.loose > LOOSE_BLOCKS {
                self.trim_next();
            }
        }
        self.sweep_out(runs);
        self.rejoin_some();
        self.leaving.blocks > 0 || self.loose > LOOSE_BLOCKS || !self.rejoining.is_empty()
    }

    /// Reclaims without changes: keeps no unused blocks, and shrinks tables.
    pub(crate) fn gc_step_idle(&mut self, runs: u32) -> bool {
        let blocks = self.forest.blocks();
        for _ in 0..TRIM {
            if self.to_trim.is_empty() || blocks - self.forest.blocks() >= TRIM as usize {
                break;
            }
            self.trim_next();
        }
        self.drop_spent_names(TRIM as usize);
        if self.gc_step(runs) || !self.to_trim.is_empty() || !self.spent_names.is_empty() {
            return true;
        }
        self.to_trim = VecDeque::new();
        self.forest.gc_step()
    }

    /// Frees at most `most` names of removed lanes, which may have millions.
    pub(crate) fn drop_spent_names(&mut self, most: usize) {
        if let Some(names) = self.spent_names.front_mut() {
            names.by_ref().take(most).for_each(drop);
            if names.len() == 0 {
                self.spent_names.pop_front();
            }
        }
    }

    /// Trims the run that has waited longest. A run with more to trim is queued again.
    fn trim_next(&mut self) {
        let Some(id) = self.to_trim.pop_front() else {
            self.loose = 0;
            return;
        };
        // A run without blocks is removed with its segment.
        let Some(run) = self.forest.find_run_mut(id) else {
            return;
        };
        run.is_queued = false;
        let (end, len) = (run.coverage.end(run.len), run.len);
        let to = end.max(len.saturating_sub(TRIM));
        self.loose = self.loose.saturating_sub((len - to) as usize);
        self.forest.truncate(id, to);
        if to > end {
            self.queue_trim(id, 0);
        }
    }

    /// Removes lanes from the next runs.
    fn sweep_out(&mut self, runs: u32) {
        let Some(first) = self.leaving.next.or_else(|| self.begin_round()) else {
            return;
        };
        let last = first.saturating_add(runs).min(self.leaving.end);
        let lanes = std::mem::take(&mut self.leaving.lanes);
        for id in (first..last).map(RunId) {
            if let Some(run) = self.forest.find_run_mut(id)
                && run.len > 0
            {
                run.coverage.forget_all(&lanes);
                let loose = run.len - run.coverage.end(run.len);
                if loose > 0 {
                    self.queue_trim(id, loose as usize);
                }
            }
        }
        self.leaving.lanes = lanes;
        self.leaving.next = Some(last);
        if last == self.leaving.end {
            self.end_round();
        }
    }

    fn begin_round(&mut self) -> Option<u32> {
        if self.leaving.later.is_empty() {
            return None;
        }
        self.leaving.lanes = std::mem::take(&mut self.leaving.later);
        self.leaving.end = self.forest.runs().end().max(1);
        Some(1)
    }

    fn end_round(&mut self) {
        let lanes: LaneBits = std::mem::take(&mut self.leaving.lanes);
        for lane in lanes.iter() {
            self.numbers.give_back(lane);
        }
        self.leaving.next = None;
        if self.leaving.later.is_empty() {
            self.leaving.blocks = 0;
        }
    }

    /// Frees at least one block outside `keep`. Returns `false` if every examined run is in use.
    pub(crate) fn make_room(&mut self, keep: Option<RunId>) -> bool {
        let before = self.forest.blocks();
        while self.forest.blocks() == before && !self.to_trim.is_empty() {
            if self.to_trim.front().copied() == keep {
                break;
            }
            self.trim_next();
        }
        for _ in 0..TRIES {
            if self.forest.blocks() < before {
                return true;
            }
            let end = self.forest.runs().end();
            self.hand = if self.hand + 1 >= end { 1 } else { self.hand + 1 };
            let id = RunId(self.hand);
            if Some(id) != keep
                && let Some(run) = self.forest.runs().find(id)
                && run.len > 0
                && !run.take_used()
            {
                self.evict(id);
            }
        }
        self.forest.blocks() < before
    }

    /// Evicts a whole run. Its memory is freed from its end on, some of it at once.
    fn evict(&mut self, id: RunId) {
        let len = self.forest.run(id).len;
        let mut lanes = self.forest.run(id).coverage.lanes();
        lanes.sort_unstable();
        lanes.dedup();
        for lane in lanes {
            let forgotten = self.forest.run_mut(id).coverage.forget(lane, len);
            let names = &mut self.lanes[lane.0 as usize];
            names.held = names.held.saturating_sub(u64::from(forgotten));
            if names.has_aliases() {
                (0..len).for_each(|at| names.forget_names(self.forest.block(BlockPosition { run: id, at })));
            }
        }
        self.evicted += u64::from(len);
        let to = len.saturating_sub(TRIM);
        self.forest.truncate(id, to);
        if to > 0 {
            self.queue_trim(id, to as usize);
        }
    }
}
