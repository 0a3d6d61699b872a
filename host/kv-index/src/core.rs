//! Index core for one writer at a time: held blocks and their changes. `ingest.rs` applies events, `query.rs` answers
//! queries.
//!
//! This module does not know about threads (`shared.rs` does).

use std::collections::{HashMap, VecDeque};

use routing::{DpRank, StoreId, Tier, WorkerId};

use crate::cache::{CacheLane, CacheTable, HolderLane, SpentNames};
use crate::count::{Applied, IndexLimits, IndexStats};
use crate::expected::WorkerPredictions;
use crate::forest::RunForest;
use crate::holder::Holder;
use crate::lanes::{LaneBits, LaneId, LaneNumbers};
use crate::objects::StoreObjects;
use crate::run::RunId;
use crate::worker_table::WorkerTable;

/// Runs that the eviction hand examines with every change.
const GC_RUNS_PER_CHANGE: u32 = 4;

/// Lanes being removed: one pass over all runs takes them out.
#[derive(Debug, Default)]
pub(crate) struct RemovedLanes {
    /// Lanes removed before the current pass began.
    pub(crate) lanes: LaneBits,
    /// Lanes removed since; they wait for the next pass.
    pub(crate) later: LaneBits,
    /// Number of blocks that both held.
    pub(crate) blocks: u64,
    /// The next run to process; `None` between passes.
    pub(crate) next: Option<u32>,
    /// End of the pass.
    pub(crate) end: u32,
}

#[derive(Debug)]
pub(crate) struct IndexCore {
    pub(crate) limits: IndexLimits,
    pub(crate) forest: RunForest,
    pub(crate) caches: CacheTable,
    pub(crate) lanes: Vec<HolderLane>,
    /// Lanes that may have aliases.
    pub(crate) aliased: LaneBits,
    pub(crate) numbers: LaneNumbers,
    pub(crate) expected: HashMap<WorkerId, WorkerPredictions>,
    pub(crate) stores: HashMap<StoreId, StoreObjects>,
    /// Stores that may have objects to be joined again.
    pub(crate) rejoining: VecDeque<StoreId>,
    /// Query data of each worker.
    pub(crate) rows: WorkerTable,
    pub(crate) leaving: RemovedLanes,
    /// Runs whose last blocks may be unused.
    pub(crate) to_trim: VecDeque<RunId>,
    /// Approximate number of those blocks.
    pub(crate) loose: usize,
    /// Names of removed lanes, not used any more.
    pub(crate) spent_names: VecDeque<SpentNames>,
    /// The next run that may be evicted.
    pub(crate) hand: u32,
    pub(crate) evicted: u64,
    pub(crate) applied: Applied,
}

impl IndexCore {
    pub(crate) fn new(limits: IndexLimits) -> Self {
        Self {
            limits,
            forest: RunForest::new(limits.max_blocks),
            caches: CacheTable::default(),
            lanes: Vec::new(),
            aliased: LaneBits::default(),
            numbers: LaneNumbers::default(),
            expected: HashMap::new(),
            stores: HashMap::new(),
            rejoining: VecDeque::new(),
            rows: WorkerTable::default(),
            leaving: RemovedLanes::default(),
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
        self.gc_step(GC_RUNS_PER_CHANGE);
        applied
    }

    /// Clears a cache, including its block size.
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

    /// Creates a lane for a new owner.
    pub(crate) fn new_lane(&mut self) -> LaneId {
        let id = self.numbers.take();
        if self.lanes.len() <= id.0 as usize {
            self.lanes.resize_with(id.0 as usize + 1, HolderLane::default);
        }
        id
    }

    /// Adds a lane to a cache that has none on this tier in this group.
    pub(crate) fn add_lane(&mut self, holder: Holder, tier: Tier, group: u32) -> LaneId {
        let id = self.new_lane();
        let cache = self.caches.make(holder);
        cache.lanes.push(CacheLane { tier, group, id });
        id
    }

    /// Removes a lane from all answers at once. Its blocks are reclaimed later.
    pub(crate) fn drop_lane(&mut self, id: LaneId) {
        let lane = std::mem::take(&mut self.lanes[id.0 as usize]);
        let held = lane.held;
        self.aliased.remove(id);
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
        let expected = self.expected.values().flat_map(WorkerPredictions::lanes);
        IndexStats {
            distinct_blocks: self.forest.blocks(),
            runs: self.forest.runs().count(),
            blocks: lanes.map(|lane| held(lane.id)).sum(),
            expected: expected.map(held).sum(),
            leaving: self.leaving.blocks as usize,
            holders: self.caches.all().count(),
            objects: self.stores.values().map(StoreObjects::len).sum(),
            bytes: self.forest.bytes()
                + self.stores.values().map(StoreObjects::bytes).sum::<usize>()
                + self.lanes.iter().map(HolderLane::bytes).sum::<usize>()
                + self.spent_names.iter().map(SpentNames::len).sum::<usize>() * HolderLane::NAME_BYTES
                + self.to_trim.capacity() * size_of::<RunId>(),
            evicted: self.evicted,
            applied: self.applied,
        }
    }
}
