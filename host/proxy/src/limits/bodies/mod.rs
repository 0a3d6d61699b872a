//! Limits on all request bodies in memory: the bytes they hold (`budget.rs`), and the number in arrival
//! (`arrivals.rs`). `pace.rs` sets how fast a body must come.

mod arrivals;
mod budget;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use self::arrivals::Arrivals;
pub(crate) use self::arrivals::{BodyArrival, GivesWay};
use self::budget::{BodyBudget, Share};
pub(crate) use self::pace::BodyPace;

/// Maximum factor by which scarcity raises the required pace of a body.
const MAX_PACE_FACTOR: u32 = 64;

/// Limits of all clients together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTotals {
    /// Maximum bytes of all bodies held.
    pub bytes: usize,
    /// Maximum of incomplete bodies in arrival.
    pub unfinished: usize,
    /// Memory limit of the process in bytes, at shares of which load is shed. `None`: unlimited.
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

/// Error: the limits of all bodies together are reached.
#[derive(Debug, Error)]
#[error("the buffer for request bodies is full")]
pub(crate) struct BodiesFull;

/// Request bodies of all clients. It outlives snapshots.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    budget: Arc<BodyBudget>,
    arrivals: Arc<Arrivals>,
    numbers: AtomicU64,
}

/// Values for a collector of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodiesReport {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
    pub(crate) unfinished: usize,
}

/// Slot of one body in arrival.
#[derive(Debug)]
pub(crate) struct BodySlot {
    number: u64,
    share: Share,
    arrivals: Arc<Arrivals>,
}

/// Complete body with its share of the bytes.
struct HeldBody {
    bytes: Bytes,
    _share: Share,
}

impl Bodies {
    /// Applies limits. Bodies already held are kept.
    pub(crate) fn set_limits(&self, totals: BodyTotals) {
        self.arrivals.set_limit(totals.unfinished);
        self.budget.set_limit(totals.bytes);
    }

    /// Creates the slot of the youngest body. The body may wait for room for `patience` in total.
    pub(crate) fn begin(&self, patience: Duration) -> BodySlot {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        BodySlot {
            number,
            share: Share::new(Arc::clone(&self.budget), number, patience),
            arrivals: Arc::clone(&self.arrivals),
        }
    }

    /// Drops the quarter of the bodies in arrival that hold most bytes, for lack of memory.
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
    /// Takes bytes that arrived, and waits until there is room for them.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<(), BodiesFull> {
        self.share.take(bytes).await
    }

    /// Counts the body as in arrival until the result is dropped.
    pub(crate) fn arrive(&self) -> Result<BodyArrival, BodiesFull> {
        let arrival = Arrivals::begin(&self.arrivals, self.number)?;
        arrival.holds(self.share.held());
        Ok(arrival)
    }

    /// Returns the factor on the required pace: 1 while half of the room for bodies is free, and more as it shrinks.
    pub(crate) fn pace_factor(&self) -> u32 {
        self.arrivals.pace_factor().max(self.share.pace_factor())
    }

    /// Returns the bytes taken by the body.
    pub(crate) fn held(&self) -> usize {
        self.share.held()
    }

    /// Returns the complete body. Its share is returned when the last handle is dropped.
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

/// Computes the factor for `taken` of `limit`: twice as much free room halves it.
fn pace_factor(taken: usize, limit: usize) -> u32 {
    let free = limit.saturating_sub(taken).max(1);
    u32::try_from(limit / 2 / free)
        .unwrap_or(u32::MAX)
        .clamp(1, MAX_PACE_FACTOR)
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
        let of = |taken| pace_factor(taken, 1_000);
        assert_eq!([of(0), of(500), of(750), of(900), of(990)], [1, 1, 2, 5, 50]);
        assert_eq!(
            [of(1_000), of(2_000), pace_factor(0, 0)],
            [MAX_PACE_FACTOR, MAX_PACE_FACTOR, 1]
        );
    }
}
