//! Bodies of clients' requests in memory, taken together: how many bytes of them are held (`budget.rs`), and how many are
//! arriving at a time (`arrivals.rs`).

mod arrivals;
mod budget;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use self::arrivals::Arrivals;
pub(crate) use self::arrivals::{Arrival, GivesWay};
use self::budget::{BodyBudget, Share};

/// A body need not come faster than this many times the configured pace.
const MOST_HASTE: u32 = 64;

/// What all clients may take together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTotals {
    /// Bytes of all bodies that are held.
    pub bytes: usize,
    /// Bodies that have begun to arrive and are not complete.
    pub unfinished: usize,
    /// Bytes of the whole process, at shares of which load is shed; none: without limit.
    pub memory: Option<u64>,
}

impl Default for BodyTotals {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            unfinished: 5_000,
            memory: None,
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

    /// Has a part of the bodies that are arriving fail for want of memory, those that hold most.
    pub(crate) fn end_largest(&self) {
        self.arrivals.end_largest();
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
        let arrival = Arrivals::begin(&self.arrivals, self.number)?;
        arrival.holds(self.share.held());
        Ok(arrival)
    }

    /// How many times faster than else a body must come: 1 while half of the room for bodies is free, then more the less is.
    pub(crate) fn haste(&self) -> u32 {
        self.arrivals.haste().max(self.share.haste())
    }

    /// Bytes that the body has taken.
    pub(crate) fn held(&self) -> usize {
        self.share.held()
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

/// The haste where `taken` of `limit` is: twice as much of it free is half the haste.
fn haste(taken: usize, limit: usize) -> u32 {
    let free = limit.saturating_sub(taken).max(1);
    u32::try_from(limit / 2 / free)
        .unwrap_or(u32::MAX)
        .clamp(1, MOST_HASTE)
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_room_is_free_the_faster_a_body_must_come() {
        let of = |taken| haste(taken, 1_000);
        assert_eq!([of(0), of(500), of(750), of(900), of(990)], [1, 1, 2, 5, 50]);
        assert_eq!([of(1_000), of(2_000), haste(0, 0)], [MOST_HASTE, MOST_HASTE, 1]);
    }
}
