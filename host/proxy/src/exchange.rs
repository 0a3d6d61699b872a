//! One request from the match of its route to its end, and its share of a worker's load. Both are accounted for
//! exactly once, however the request ends, also when everything about it is dropped because the client left.
//!
//! They live as long as an answer is relayed, which may be hours, and must not know the snapshot: it would keep
//! every policy alive that a reload has long replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use routing::LoadLease;

use crate::hold::HoldQueue;
use crate::label::Outcome;
use crate::snapshot::{Member, PoolState};

/// Counts the request's outcome and duration. Dropped without an outcome, the client has left.
#[derive(Debug)]
pub(crate) struct Exchange {
    pool: Arc<PoolState>,
    id: HeaderValue,
    arrived: Instant,
    over: bool,
}

impl Exchange {
    pub(crate) fn begin(pool: Arc<PoolState>, id: HeaderValue, arrived: Instant) -> Self {
        Self {
            pool,
            id,
            arrived,
            over: false,
        }
    }

    pub(crate) fn pool(&self) -> &PoolState {
        &self.pool
    }

    /// The request's `x-request-id`.
    pub(crate) fn id(&self) -> &HeaderValue {
        &self.id
    }

    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.pool.members[at]
    }

    /// The first byte of a streamed answer came.
    pub(crate) fn first_token(&self) {
        self.pool
            .metrics
            .first_token
            .observe(self.arrived.elapsed().as_secs_f64());
    }

    /// It is over; only the first call counts.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.over, true) {
            let metrics = &self.pool.metrics;
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
    queue: Arc<HoldQueue>,
}

impl Booking {
    pub(crate) fn new(lease: LoadLease, queue: Arc<HoldQueue>) -> Self {
        Self {
            lease: Some(lease),
            queue,
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
        self.queue.release();
    }
}
