//! Worker table: the query data of each worker, several workers per cache line.

use routing::{DpRank, Tier, WorkerId};

use crate::core::IndexCore;
use crate::lanes::{LaneBits, LaneId};

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

/// Table by worker number. Numbers are dense and start at 0. A worker that left keeps an empty row, as its number is
/// not used again: 32 bytes for each worker number up to the highest that had a cache, so that a lookup is an index.
///
/// It keeps the totals that a query of all workers needs, so that a query takes time for holders only.
#[derive(Debug, Default)]
pub(crate) struct WorkerTable {
    rows: Vec<WorkerRow>,
    /// Lanes of the plain rows.
    plain: LaneBits,
    /// Owners of the plain rows' lanes, by lane number. Other entries are out of date.
    owners: Vec<WorkerId>,
    /// Block sizes of the plain rows, with their number: nearly always one size.
    sizes: Vec<(u32, usize)>,
    /// Number of special rows.
    special: usize,
    /// Number of rows with a rank above 0.
    ranked: usize,
}

const _: () = assert!(size_of::<WorkerRow>() == 32, "two rows in a cache line");

const UNKNOWN: &WorkerRow = &WorkerRow {
    lanes: [None; 3],
    block_size: 0,
    rank: DpRank(0),
    shape: QueryShape::Empty,
};

impl WorkerTable {
    pub(crate) fn get(&self, worker: WorkerId) -> &WorkerRow {
        self.rows.get(worker.0 as usize).unwrap_or(UNKNOWN)
    }

    pub(crate) fn forget(&mut self, worker: WorkerId) {
        if (worker.0 as usize) < self.rows.len() {
            self.set(worker, WorkerRow::default());
        }
    }

    /// Returns the block size of all workers' caches if one plain walk covers them all; 0 if there are none.
    pub(crate) fn one_size(&self) -> Option<u32> {
        match self.sizes[..] {
            _ if self.special > 0 => None,
            [] => Some(0),
            [(size, _)] => Some(size),
            _ => None,
        }
    }

    /// Returns the lanes of the plain rows.
    pub(crate) fn plain_lanes(&self) -> &LaneBits {
        &self.plain
    }

    /// Returns the worker of a plain row's lane.
    pub(crate) fn owner(&self, lane: LaneId) -> WorkerId {
        self.owners[lane.0 as usize]
    }

    /// Returns `true` if any row has a rank above 0.
    pub(crate) fn has_ranks(&self) -> bool {
        self.ranked > 0
    }

    fn set(&mut self, worker: WorkerId, row: WorkerRow) {
        let at = worker.0 as usize;
        if self.rows.len() <= at {
            self.rows.resize(at + 1, WorkerRow::default());
        }
        let before = std::mem::replace(&mut self.rows[at], row);
        self.subtract(&before);
        self.add(worker, &row);
    }

    fn add(&mut self, worker: WorkerId, row: &WorkerRow) {
        self.ranked += usize::from(row.rank.0 > 0);
        match row.shape {
            QueryShape::Empty => {}
            QueryShape::Special => self.special += 1,
            QueryShape::Plain => {
                match self.sizes.iter_mut().find(|(size, _)| *size == row.block_size) {
                    Some((_, rows)) => *rows += 1,
                    None => self.sizes.push((row.block_size, 1)),
                }
                for lane in row.lanes.into_iter().flatten() {
                    let at = lane.0 as usize;
                    if self.owners.len() <= at {
                        self.owners.resize(at + 1, WorkerId(0));
                    }
                    self.owners[at] = worker;
                    self.plain.insert(lane);
                }
            }
        }
    }

    fn subtract(&mut self, row: &WorkerRow) {
        self.ranked -= usize::from(row.rank.0 > 0);
        match row.shape {
            QueryShape::Empty => {}
            QueryShape::Special => self.special -= 1,
            QueryShape::Plain => {
                if let Some(at) = self.sizes.iter().position(|(size, _)| *size == row.block_size) {
                    self.sizes[at].1 -= 1;
                    if self.sizes[at].1 == 0 {
                        self.sizes.swap_remove(at);
                    }
                }
                row.lanes
                    .into_iter()
                    .flatten()
                    .for_each(|lane| self.plain.remove(lane));
            }
        }
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
