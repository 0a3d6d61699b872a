//! Permit to use one connection of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// Permit to use one connection. Empty for the router's own requests.
pub(crate) type ConnectionPermit = Option<HeldPermit>;

/// Limit of the connections in use. It may change while they are, also from or to unlimited: it counts in any case.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    permits: Semaphore,
    /// Permits in use beyond a limit that was lowered. As many are dropped when they are returned.
    surplus: AtomicUsize,
}

/// Permit of a limit. Its drop returns it.
#[derive(Debug)]
pub(crate) struct HeldPermit {
    limit: Arc<ConnectionLimit>,
}

impl ConnectionLimit {
    /// Creates a limit. `None`: unlimited.
    pub(crate) fn new(most: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            permits: Semaphore::new(bounded(most)),
            surplus: AtomicUsize::new(0),
        })
    }

    /// Changes the limit. Connections in use stay, even above the new limit. Called by one thread at a time.
    pub(crate) fn change(&self, before: Option<usize>, most: Option<usize>) {
        let (before, most) = (bounded(before), bounded(most));
        if let Some(fewer) = before.checked_sub(most) {
            let free = self.permits.forget_permits(fewer);
            self.surplus.fetch_add(fewer - free, Ordering::SeqCst);
        } else {
            let mut more = most - before;
            while more > 0 && self.take_surplus() {
                more -= 1;
            }
            self.permits.add_permits(more);
        }
    }

    /// Acquires a permit at once. Returns `None` while all are in use.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> ConnectionPermit {
        self.permits.try_acquire().ok()?.forget();
        let limit = Arc::clone(self);
        Some(HeldPermit { limit })
    }

    /// Acquires a permit; waits for one while all are in use.
    pub(crate) async fn acquire(self: &Arc<Self>) -> ConnectionPermit {
        self.permits.acquire().await.ok()?.forget();
        let limit = Arc::clone(self);
        Some(HeldPermit { limit })
    }

    /// Takes one of the surplus. Returns `false` if there is none.
    fn take_surplus(&self) -> bool {
        let less = |surplus: usize| surplus.checked_sub(1);
        let taken = self
            .surplus
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        taken.is_ok()
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        if !self.limit.take_surplus() {
            self.limit.permits.add_permits(1);
        }
    }
}

fn bounded(most: Option<usize>) -> usize {
    most.map_or(Semaphore::MAX_PERMITS, |most| most.min(Semaphore::MAX_PERMITS))
}
