//! The index for one writer at a time: what is held by whom, and how it changes. Events are taken in by `ingest.rs`,
//! questions answered by `query.rs`.
//!
//! It must not know about threads (`shared.rs` does).

use std::collections::{HashMap, VecDeque};

use routing::{DpRank, StoreId, Tier, WorkerId};

use crate::cache::{CacheLane, Caches, Lane, SpentNames};
use crate::count::{Applied, IndexLimits, IndexStats};
use crate::expected::Expected;
use crate::forest::Forest;
use crate::lanes::{LaneBits, LaneId, LaneNumbers};
use crate::objects::Objects;
use crate::rows::Rows;
use crate::run::RunId;
use crate::shared::Holder;

/// Runs looked at by the reclaiming hand with every change.
const TEND_EVERY_CHANGE: u32 = 4;

/// Lanes on their way out: one look at every run takes them all out of it.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// Left before the current round began.
    pub(crate) lanes: LaneBits,
    /// Left since: they wait for the next round.
    pub(crate) later: LaneBits,
    /// Blocks that both held.
    pub(crate) blocks: u64,
    /// The next run to look at; none between rounds.
    pub(crate) next: Option<u32>,
    /// Where the round ends.
    pub(crate) end: u32,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) limits: IndexLimits,
    pub(crate) forest: Forest,
    pub(crate) caches: Caches,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) numbers: LaneNumbers,
    pub(crate) expected: HashMap<WorkerId, Expected>,
    pub(crate) stores: HashMap<StoreId, Objects>,
    /// What a query needs of each worker at hand.
    pub(crate) rows: Rows,
    pub(crate) leaving: Leaving,
    /// Runs whose last blocks nobody may hold.
    pub(crate) to_trim: VecDeque<RunId>,
    /// About how many blocks those are.
    pub(crate) loose: usize,
    /// Names of lanes that left, which nobody asks for any more.
    pub(crate) spent_names: VecDeque<SpentNames>,
    /// The next run that may have to make room.
    pub(crate) hand: u32,
    pub(crate) evicted: u64,
    pub(crate) applied: Applied,
}

impl Core {
    pub(crate) fn new(limits: IndexLimits) -> Self {
        Self {
            limits,
            forest: Forest::new(limits.max_blocks),
            caches: Caches::default(),
            lanes: Vec::new(),
            numbers: LaneNumbers::default(),
            expected: HashMap::new(),
            stores: HashMap::new(),
            rows: Rows::default(),
            leaving: Leaving::default(),
            to_trim: VecDeque::new(),
            loose: 0,
            spent_names: VecDeque::new(),
            hand: 1,
            evicted: 0,
            applied: Applied::default(),
        }
    }

    pub(crate) fn clear(&mut self, holder: Holder) -> Applied {
        let applied = self.forget(holder);
        self.forget_expected(holder.worker);
        self.applied += applied;
        self.tend(TEND_EVERY_CHANGE);
        applied
    }

    /// Takes everything from a cache, down to its block size.
    pub(crate) fn forget(&mut self, holder: Holder) -> Applied {
        let mut applied = Applied::default();
        if let Some(cache) = self.caches.remove(holder) {
            for lane in cache.lanes {
                applied.cleared += self.lanes[lane.id.0 as usize].held;
                self.drop_lane(lane.id);
            }
            self.refresh_row(holder.worker);
        }
        applied
    }

    pub(crate) fn remove_worker(&mut self, worker: WorkerId) -> Applied {
        let ranks: Vec<DpRank> = self.caches.ranks(worker).map(|(rank, _)| *rank).collect();
        let mut applied = Applied::default();
        for rank in ranks {
            applied += self.clear(Holder { worker, rank });
        }
        self.forget_expected(worker);
        self.unbind_stores(worker);
        self.rows.forget(worker);
        applied
    }

    /// A lane of its own for what nobody held before.
    pub(crate) fn new_lane(&mut self) -> LaneId {
        let id = self.numbers.take();
        if self.lanes.len() <= id.0 as usize {
            self.lanes.resize_with(id.0 as usize + 1, Lane::default);
        }
        id
    }

    /// A lane for a cache that has none on this tier in this group.
    pub(crate) fn add_lane(&mut self, holder: Holder, tier: Tier, group: u32) -> LaneId {
        let id = self.new_lane();
        let cache = self.caches.make(holder);
        cache.lanes.push(CacheLane { tier, group, id });
        id
    }

    /// Takes a lane out of every answer at once; its blocks are reclaimed later.
    pub(crate) fn drop_lane(&mut self, id: LaneId) {
        let lane = std::mem::take(&mut self.lanes[id.0 as usize]);
        let held = lane.held;
        self.spent_names.extend(lane.into_names());
        if held == 0 {
            self.numbers.give_back(id);
        } else {
            self.leaving.blocks += held;
            self.leaving.later.insert(id);
        }
    }

    pub(crate) fn held_blocks(&self, worker: WorkerId) -> u64 {
        let lanes = self.caches.ranks(worker).flat_map(|(_, cache)| &cache.lanes);
        lanes.map(|lane| self.lanes[lane.id.0 as usize].held).sum()
    }

    pub(crate) fn stats(&self) -> IndexStats {
        let held = |lane: LaneId| self.lanes[lane.0 as usize].held as usize;
        let lanes = self.caches.all().flat_map(|cache| &cache.lanes);
        let expected = self.expected.values().flat_map(Expected::lanes);
        IndexStats {
            distinct_blocks: self.forest.blocks(),
            runs: self.forest.runs().count(),
            blocks: lanes.map(|lane| held(lane.id)).sum(),
            expected: expected.map(held).sum(),
            leaving: self.leaving.blocks as usize,
            holders: self.caches.all().count(),
            objects: self.stores.values().map(Objects::len).sum(),
            bytes: self.forest.bytes()
                + self.stores.values().map(Objects::bytes).sum::<usize>()
                + self.lanes.iter().map(Lane::bytes).sum::<usize>()
                + self.spent_names.iter().map(SpentNames::len).sum::<usize>() * Lane::NAME_BYTES
                + self.to_trim.capacity() * size_of::<RunId>(),
            evicted: self.evicted,
            applied: self.applied,
        }
    }
}
