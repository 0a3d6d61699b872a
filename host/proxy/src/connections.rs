//! How many clients may be connected at a time, and how many are.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

use crate::metrics::ProxyMetrics;
use crate::throttle::Throttle;

/// Room for so many connections.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    limit: usize,
    taken: Gauge,
    full_log: Throttle,
}

/// Room for one.
#[derive(Debug)]
pub(crate) struct Seat {
    _permit: OwnedSemaphorePermit,
    taken: Gauge,
}

/// A connection has it; free again when dropped.
#[derive(Debug)]
pub(crate) struct TakenSeat(Seat);

impl Room {
    pub(crate) fn new(limit: usize, metrics: &ProxyMetrics) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        let shown = i64::try_from(limit).unwrap_or(i64::MAX);
        metrics.client_connections_limit.set(shown);
        Self {
            free: Arc::new(Semaphore::new(limit)),
            limit,
            taken: metrics.client_connections.clone(),
            full_log: Throttle::default(),
        }
    }

    /// Waits for a seat, and says so in the log.
    pub(crate) async fn seat(&self) -> Seat {
        let free = || Arc::clone(&self.free);
        let permit = match free().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if let Some(held_back) = self.full_log.pass() {
                    warn!(
                        limit = self.limit,
                        key = "server.max-connections",
                        held_back,
                        "as many clients are connected as may be; further ones wait"
                    );
                }
                free().acquire_owned().await.expect("nobody closes it")
            }
        };
        Seat {
            _permit: permit,
            taken: self.taken.clone(),
        }
    }
}

impl Seat {
    pub(crate) fn take(self) -> TakenSeat {
        self.taken.inc();
        TakenSeat(self)
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        self.0.taken.dec();
    }
}
