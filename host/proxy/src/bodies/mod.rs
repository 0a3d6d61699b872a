//! Bodies of clients' requests in memory, taken together: how many bytes of them are held (`budget.rs`), and how many are
//! arriving at a time (`arrivals.rs`).

mod arrivals;
mod budget;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

pub(crate) use self::arrivals::Arrival;
use self::arrivals::Arrivals;
use self::budget::{BodyBudget, Share};

/// What all bodies may take together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTotals {
    /// Bytes of all bodies that are held.
    pub bytes: usize,
    /// Bodies that have begun to arrive and are not complete.
    pub unfinished: usize,
}

impl Default for BodyTotals {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            unfinished: 5_000,
        }
    }
}

/// All bodies take as much as they may.
#[derive(Debug, Error)]
#[error("the requests under way take all the room for request bodies")]
pub(crate) struct BodiesFull;

/// The bodies of all requests. It outlives snapshots.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    budget: Arc<BodyBudget>,
    arrivals: Arc<Arrivals>,
    numbers: AtomicU64,
}

/// What a collector of metrics reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodiesReport {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
    pub(crate) unfinished: usize,
}

/// One body, while it arrives.
#[derive(Debug)]
pub(crate) struct BodySlot {
    number: u64,
    share: Share,
    arrivals: Arc<Arrivals>,
}

/// A complete body, and its share of the bytes.
struct HeldBody {
    bytes: Bytes,
    _share: Share,
}

impl Bodies {
    /// Applies limits. Bodies that are held stay.
    pub(crate) fn set_limits(&self, totals: BodyTotals) {
        self.arrivals.set_limit(totals.unfinished);
        self.budget.set_limit(totals.bytes);
    }

    /// Returns the slot of a body that has come later than every other one. It may wait for room for `patience` in all.
    pub(crate) fn begin(&self, patience: Duration) -> BodySlot {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        BodySlot {
            number,
            share: Share::new(Arc::clone(&self.budget), number, patience),
            arrivals: Arc::clone(&self.arrivals),
        }
    }

    pub(crate) fn report(&self) -> BodiesReport {
        BodiesReport {
            bytes: self.budget.held(),
            limit: self.budget.limit(),
            unfinished: self.arrivals.count(),
        }
    }
}

impl BodySlot {
    /// Takes bytes that came, once there is room for them.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<(), BodiesFull> {
        self.share.take(bytes).await
    }

    /// Counts the body among those that are arriving, until the arrival is dropped.
    pub(crate) fn arrive(&self) -> Result<Arrival, BodiesFull> {
        Arrivals::begin(&self.arrivals, self.number)
    }

    /// Returns the complete body. Its share is given back when the last handle to it is dropped.
    pub(crate) fn keep(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        Bytes::from_owner(HeldBody {
            bytes,
            _share: self.share,
        })
    }
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
