//! Ancestors of held blocks that the cache does not hold itself.
//!
//! A cache may hold blocks after a gap: their parents were evicted, and other caches hold them. Without the blocks of
//! the gap, the importing index would not find the place of the held ones, and would create them a second time.

use std::collections::HashSet;

use crate::cache::CacheLane;
use crate::core::IndexCore;
use crate::forest::BlockPosition;
use crate::run::{BlockRun, RunId};
use crate::snapshot::export::{BLOCKS_PER_STEP, RUNS_PER_STEP, chain_of, held_end};
use crate::snapshot::{CacheSnapshot, MOST_CHAIN_BLOCKS};

/// Search of the whole index, in small steps.
#[derive(Debug)]
pub(crate) struct AncestorSearch {
    /// Ends of prefixes after which chains begin, and which no chain has.
    wanted: HashSet<u64>,
    /// The next block to read.
    next: BlockPosition,
    /// The first block of that run that is not in the snapshot.
    missing_from: u32,
}

impl AncestorSearch {
    /// Creates a search for the parents that the snapshot lacks. Returns `None` if it lacks none, or if the search
    /// `before` has found none of them.
    pub(crate) fn new(snapshot: &CacheSnapshot, before: Option<&Self>) -> Option<Self> {
        let mut wanted: HashSet<u64> = snapshot.chains.iter().filter_map(|chain| chain.parent).collect();
        for content in snapshot.chains.iter().flat_map(|chain| &chain.contents) {
            wanted.remove(content);
        }
        let is_new = !wanted.is_empty() && before.is_none_or(|before| before.wanted != wanted);
        is_new.then_some(Self {
            wanted,
            next: BlockPosition { run: RunId(1), at: 0 },
            missing_from: 0,
        })
    }

    /// Adds the ancestors in the next runs to the snapshot, at most `left` blocks. Returns `true` if there is more to
    /// do.
    pub(crate) fn step(
        &mut self,
        core: &IndexCore,
        lanes: &[CacheLane],
        left: &mut usize,
        snapshot: &mut CacheSnapshot,
    ) -> bool {
        let end = core.forest.runs().end();
        let last = self.next.run.0.saturating_add(RUNS_PER_STEP).min(end);
        let mut unread = BLOCKS_PER_STEP as u32;
        while self.next.run.0 < last && unread > 0 {
            let Some(run) = core.forest.runs().find(self.next.run) else {
                self.next_run();
                continue;
            };
            if self.next.at == 0 {
                self.missing_from = held_end(run, lanes);
                self.next.at = self.missing_from;
            }
            let to = run.len.min(self.next.at.saturating_add(unread));
            unread -= to.saturating_sub(self.next.at);
            if !self.read(core, run, to, left, snapshot) {
                snapshot.is_whole = false;
                return false;
            }
            if to >= run.len {
                self.next_run();
            }
        }
        self.next.run.0 < end
    }

    fn next_run(&mut self) {
        self.next = BlockPosition {
            run: RunId(self.next.run.0 + 1),
            at: 0,
        };
    }

    /// Reads a run up to `to`. Returns `false` if an ancestor is one block too many.
    fn read(
        &mut self,
        core: &IndexCore,
        run: &BlockRun,
        to: u32,
        left: &mut usize,
        snapshot: &mut CacheSnapshot,
    ) -> bool {
        for at in self.next.at..to {
            if !self.wanted.contains(&core.forest.content(run, at)) {
                continue;
            }
            let blocks = (at + 1 - self.missing_from) as usize;
            if blocks > *left {
                return false;
            }
            *left -= blocks;
            for from in (self.missing_from..=at).step_by(MOST_CHAIN_BLOCKS) {
                let end = (at + 1).min(from + MOST_CHAIN_BLOCKS as u32);
                snapshot.chains.push(chain_of(core, run, from, end, &[]));
            }
            self.missing_from = at + 1;
        }
        self.next.at = to.max(self.next.at);
        true
    }
}
