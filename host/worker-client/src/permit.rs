//! Permit to use one connection of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permit to use one connection. Empty if connections are unlimited, and for the router's own requests.
pub(crate) type ConnectionPermit = Option<HeldPermit>;

/// Limit of the connections in use. It may change while they are.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    /// Permits in use beyond a limit that was lowered. As many are dropped when they are returned.
    surplus: AtomicUsize,
}

/// Permit of a limit. Its drop returns it.
#[derive(Debug)]
pub(crate) struct HeldPermit {
    permit: Option<OwnedSemaphorePermit>,
    limit: Arc<ConnectionLimit>,
}

impl ConnectionLimit {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(bounded(most))),
            surplus: AtomicUsize::new(0),
        })
    }

    /// Changes the limit. Connections in use stay, even above the new limit. Called by one thread at a time.
    pub(crate) fn change(&self, before: usize, most: usize) {
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

    /// Acquires a permit; waits for one while all are in use.
    pub(crate) async fn acquire(self: Arc<Self>) -> ConnectionPermit {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        Some(HeldPermit {
            permit: Some(permit.ok()?),
            limit: self,
        })
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
        if let Some(permit) = self.permit.take()
            && self.limit.take_surplus()
        {
            permit.forget();
        }
    }
}

fn bounded(most: usize) -> usize {
    most.min(Semaphore::MAX_PERMITS)
}
