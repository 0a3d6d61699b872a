//! Worker table: the query data of each worker, several workers per cache line.

use routing::{DpRank, Tier, WorkerId};

use crate::core::IndexCore;
use crate::lanes::LaneId;

/// Kind of query that a worker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum QueryShape {
    /// The worker is unknown.
    #[default]
    Empty,
    /// Single cache with full attention, only on the device: its lanes are complete.
    Plain,
    /// Any other worker.
    Special,
}

/// Query data of one worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkerRow {
    /// Lane of the device, and those of predictions.
    pub(crate) lanes: [Option<LaneId>; 3],
    pub(crate) block_size: u32,
    pub(crate) rank: DpRank,
    pub(crate) shape: QueryShape,
}

/// Table by worker number. Numbers are dense and start at 0.
#[derive(Debug, Default)]
pub(crate) struct WorkerTable(Vec<WorkerRow>);

impl WorkerTable {
    pub(crate) fn get(&self, worker: WorkerId) -> &WorkerRow {
        const UNKNOWN: &WorkerRow = &WorkerRow {
            lanes: [None; 3],
            block_size: 0,
            rank: DpRank(0),
            shape: QueryShape::Empty,
        };
        self.0.get(worker.0 as usize).unwrap_or(UNKNOWN)
    }

    pub(crate) fn forget(&mut self, worker: WorkerId) {
        if let Some(row) = self.0.get_mut(worker.0 as usize) {
            *row = WorkerRow::default();
        }
    }

    fn set(&mut self, worker: WorkerId, row: WorkerRow) {
        let at = worker.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, WorkerRow::default());
        }
        self.0[at] = row;
    }
}

impl IndexCore {
    /// Updates a worker's row from its lanes.
    pub(crate) fn refresh_row(&mut self, worker: WorkerId) {
        let row = self.row_of(worker);
        self.rows.set(worker, row);
    }

    fn row_of(&self, worker: WorkerId) -> WorkerRow {
        let expected = self.expected.get(&worker);
        let mut row = WorkerRow::default();
        if let Some(expected) = expected {
            row.lanes = [None, expected.current, expected.previous];
            row.block_size = expected.block_size;
            row.shape = QueryShape::Plain;
        }
        let mut caches = self
            .caches
            .ranks(worker)
            .filter(|(_, cache)| !cache.lanes.is_empty());
        let Some((rank, cache)) = caches.next() else {
            return row;
        };
        let block_size = cache.base;
        let is_plain = caches.next().is_none()
            && cache.is_plain()
            && cache.lanes.iter().all(|lane| lane.tier == Tier::Device)
            && expected.is_none_or(|expected| expected.block_size == block_size)
            && !self.stores.values().any(|store| store.is_bound(worker));
        row.lanes[0] = cache.lanes.first().map(|lane| lane.id);
        row.block_size = block_size;
        row.rank = *rank;
        row.shape = if is_plain {
            QueryShape::Plain
        } else {
            QueryShape::Special
        };
        row
    }
}
