//! What a query needs of each worker, in one line of memory a few workers share.

use routing::{DpRank, Tier, WorkerId};

use crate::core::Core;
use crate::lanes::LaneId;

/// How a worker is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    /// Nothing is known of it.
    #[default]
    Empty,
    /// One cache, on the device only, of full attention: its lanes are all there is to it.
    Plain,
    /// Anything else.
    Special,
}

/// One worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Row {
    /// The device's lane, and those of what is expected there.
    pub(crate) lanes: [Option<LaneId>; 3],
    pub(crate) block_size: u32,
    pub(crate) rank: DpRank,
    pub(crate) shape: Shape,
}

/// All workers, by number: those count up from 0 and are dense.
#[derive(Debug, Default)]
pub(crate) struct Rows(Vec<Row>);

impl Rows {
    pub(crate) fn get(&self, worker: WorkerId) -> &Row {
        const UNKNOWN: &Row = &Row {
            lanes: [None; 3],
            block_size: 0,
            rank: DpRank(0),
            shape: Shape::Empty,
        };
        self.0.get(worker.0 as usize).unwrap_or(UNKNOWN)
    }

    pub(crate) fn forget(&mut self, worker: WorkerId) {
        if let Some(row) = self.0.get_mut(worker.0 as usize) {
            *row = Row::default();
        }
    }

    fn set(&mut self, worker: WorkerId, row: Row) {
        let at = worker.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, Row::default());
        }
        self.0[at] = row;
    }
}

impl Core {
    /// Brings a worker's row up to date with its lanes.
    pub(crate) fn refresh_row(&mut self, worker: WorkerId) {
        let row = self.row_of(worker);
        self.rows.set(worker, row);
    }

    fn row_of(&self, worker: WorkerId) -> Row {
        let expected = self.expected.get(&worker);
        let mut row = Row::default();
        if let Some(expected) = expected {
            row.lanes = [None, expected.current, expected.previous];
            row.block_size = expected.block_size;
            row.shape = Shape::Plain;
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
        row.shape = if is_plain { Shape::Plain } else { Shape::Special };
        row
    }
}
