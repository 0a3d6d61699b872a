//! One request from the match of its route to its end, and its share of a worker's load. Both are accounted for
//! exactly once, however the request ends, also when everything about it is dropped because the client left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::LoadLease;

use crate::label::Outcome;
use crate::snapshot::{Member, PoolState, Snapshot};

/// Counts the request's outcome and duration. Dropped without an outcome, the client has left.
#[derive(Debug)]
pub(crate) struct Exchange {
    snapshot: Arc<Snapshot>,
    pool: usize,
    arrived: Instant,
    over: bool,
}

impl Exchange {
    pub(crate) fn begin(snapshot: Arc<Snapshot>, pool: usize, arrived: Instant) -> Self {
        Self {
            snapshot,
            pool,
            arrived,
            over: false,
        }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(crate) fn pool(&self) -> &PoolState {
        &self.snapshot.pools[self.pool]
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.pool().members[at]
    }

    /// The first byte of a streamed answer came.
    pub(crate) fn first_token(&self) {
        self.pool()
            .metrics
            .first_token
            .observe(self.arrived.elapsed().as_secs_f64());
    }

    /// It is over; only the first call counts.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.over, true) {
            let metrics = &self.pool().metrics;
            metrics.ended(outcome);
            metrics.duration.observe(self.arrived.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.finish(Outcome::ClientLeft);
    }
}

/// A lease on a worker's load that tells the pool's queue when it is given back.
#[derive(Debug)]
pub(crate) struct Booking {
    lease: Option<LoadLease>,
    snapshot: Arc<Snapshot>,
    pool: usize,
}

impl Booking {
    pub(crate) fn new(lease: LoadLease, snapshot: Arc<Snapshot>, pool: usize) -> Self {
        Self {
            lease: Some(lease),
            snapshot,
            pool,
        }
    }

    /// The first token came, `ttft` after the dispatch.
    pub(crate) fn first_token(&mut self, ttft: Duration) {
        if let Some(lease) = &mut self.lease {
            lease.first_token(ttft);
        }
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        // First the load, so that whoever is asked again sees it gone.
        self.lease = None;
        self.snapshot.pools[self.pool].queue.release();
    }
}
