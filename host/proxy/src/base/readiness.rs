//! Readiness of the router, as `/readyz` reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio_util::sync::CancellationToken;

const STARTING: u8 = 0;
const FILLING: u8 = 1;
const READY: u8 = 2;
const DRAINING: u8 = 3;
const CUTTING: u8 = 4;

/// Readiness state. The composition root changes it, and the server reports it. Starts as not ready.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    state: Arc<AtomicU8>,
    /// Cancelled by [`Readiness::end_drain`].
    drain_end: CancellationToken,
}

impl Readiness {
    /// Marks the router as waiting for the fill of its index. Requests are served meanwhile.
    pub fn mark_filling(&self) {
        // No other data is published with it. States only advance.
        self.state.fetch_max(FILLING, Ordering::Relaxed);
    }

    /// Marks the router as ready, unless draining has begun.
    pub fn mark_ready(&self) {
        self.state.fetch_max(READY, Ordering::Relaxed);
    }

    /// Marks the router as draining, for good. [`serve`](crate::serve) does so on shutdown. An earlier call gives load
    /// balancers time to react.
    pub fn mark_draining(&self) {
        self.state.fetch_max(DRAINING, Ordering::Relaxed);
    }

    /// Ends the drain now, as if its deadline had passed. A drain that begins later ends at once.
    pub fn end_drain(&self) {
        self.drain_end.cancel();
    }

    /// Waits for [`end_drain`](Self::end_drain).
    pub(crate) async fn drain_ended(&self) {
        self.drain_end.cancelled().await;
    }

    /// Marks the end of the drain period: requests still in progress are to end now.
    pub(crate) fn mark_cutting(&self) {
        self.state.fetch_max(CUTTING, Ordering::Relaxed);
    }

    /// Returns `true` if requests in progress are to end now. Cheap enough to be called per chunk.
    pub(crate) fn is_cutting(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CUTTING
    }

    /// Returns the reason why the router is not ready, or `None` if it is.
    #[must_use]
    pub fn objection(&self) -> Option<&'static str> {
        match self.state.load(Ordering::Relaxed) {
            READY => None,
            STARTING => Some("starting"),
            FILLING => Some("filling the prefix index"),
            _ => Some("draining"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_is_final() {
        let readiness = Readiness::default();
        assert_eq!(readiness.objection(), Some("starting"));
        readiness.mark_filling();
        assert_eq!(readiness.objection(), Some("filling the prefix index"));
        readiness.mark_ready();
        readiness.mark_filling();
        assert_eq!(readiness.objection(), None);
        readiness.mark_draining();
        readiness.mark_ready();
        assert_eq!(readiness.objection(), Some("draining"));
        assert!(!readiness.is_cutting());
        readiness.mark_cutting();
        readiness.mark_draining();
        assert!(readiness.is_cutting());
        assert_eq!(readiness.objection(), Some("draining"));
    }
}
