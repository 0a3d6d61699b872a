//! Whether the router should be sent traffic, as `/readyz` tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;
const CUTTING: u8 = 3;

/// Shared by the composition root, which changes it, and the server, which reports it. Starts as not ready.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Traffic is welcome, unless draining has begun already.
    pub fn mark_ready(&self) {
        // Nothing else is published with it, and a failed exchange means draining came first.
        let _ = self
            .0
            .compare_exchange(STARTING, READY, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// No new traffic, please. There is no way back. [`serve`](crate::serve) does it on shutdown; doing it
    /// earlier gives load balancers time to look elsewhere.
    pub fn mark_draining(&self) {
        self.0.fetch_max(DRAINING, Ordering::Relaxed);
    }

    /// The time for draining is up: what is still under way shall end now.
    pub(crate) fn mark_cutting(&self) {
        self.0.fetch_max(CUTTING, Ordering::Relaxed);
    }

    /// Whether what is under way shall end now. Cheap enough to ask for every chunk.
    pub(crate) fn is_cutting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CUTTING
    }

    /// Why traffic is not welcome; none when it is.
    #[must_use]
    pub fn objection(&self) -> Option<&'static str> {
        match self.0.load(Ordering::Relaxed) {
            READY => None,
            STARTING => Some("starting"),
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
        readiness.mark_ready();
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
