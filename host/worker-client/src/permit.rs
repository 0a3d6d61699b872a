//! Permit to use one connection of a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// Permit to use one connection. Empty for the router's own requests.
pub(crate) type ConnectionPermit = Option<HeldPermit>;

/// Limit of the connections in use. It may change while they are, also from or to unlimited.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    /// Limit; [`UNLIMITED`] for none.
    most: AtomicUsize,
    /// Connections in use. Without a limit nothing else counts them.
    in_use: AtomicUsize,
    /// Free permits, while there is a limit.
    permits: Semaphore,
    /// Permits in use beyond a limit that was lowered. As many are dropped when they are returned.
    surplus: AtomicUsize,
}

/// Permit of a limit. Its drop returns it.
#[derive(Debug)]
pub(crate) struct HeldPermit {
    limit: Arc<ConnectionLimit>,
}

const UNLIMITED: usize = usize::MAX;
/// Highest limit. The end of a limit adds as many permits again, which the semaphore must hold.
const HIGHEST: usize = Semaphore::MAX_PERMITS / 2;

impl ConnectionLimit {
    /// Creates a limit that limits nothing yet.
    pub(crate) fn unlimited() -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(UNLIMITED),
            in_use: AtomicUsize::new(0),
            permits: Semaphore::new(0),
            surplus: AtomicUsize::new(0),
        })
    }

    /// Changes the limit; `None` for unlimited. Connections in use stay, even above the new limit.
    /// Called by one thread at a time.
    pub(crate) fn change(&self, most: Option<usize>) {
        let most = most.map(|most| most.min(HIGHEST));
        match (self.most.load(Ordering::SeqCst), most) {
            (UNLIMITED, None) => {}
            (UNLIMITED, Some(most)) => self.begin(most),
            (_, None) => self.end(),
            (before, Some(most)) if before > most => self.lower(before - most, most),
            (before, Some(most)) => self.raise(most - before, most),
        }
    }

    /// Counts the connections in use under a first limit.
    fn begin(&self, most: usize) {
        self.permits.forget_permits(Semaphore::MAX_PERMITS);
        self.most.store(most, Ordering::SeqCst);
        let in_use = self.in_use.load(Ordering::SeqCst);
        self.surplus.store(in_use.saturating_sub(most), Ordering::SeqCst);
        self.permits.add_permits(most.saturating_sub(in_use));
    }

    fn end(&self) {
        self.most.store(UNLIMITED, Ordering::SeqCst);
        self.surplus.store(0, Ordering::SeqCst);
        // All that wait get a permit. The others need none.
        self.permits.add_permits(HIGHEST);
    }

    /// Lowers the limit. The earlier, higher one is in effect until the end: a permit that is returned has room.
    fn lower(&self, fewer: usize, most: usize) {
        let free = self.permits.forget_permits(fewer);
        self.surplus.fetch_add(fewer - free, Ordering::SeqCst);
        self.most.store(most, Ordering::SeqCst);
    }

    /// Raises the limit. The new one is in effect from the beginning: a permit that is returned has room.
    fn raise(&self, mut more: usize, most: usize) {
        self.most.store(most, Ordering::SeqCst);
        while more > 0 && self.take_surplus() {
            more -= 1;
        }
        self.permits.add_permits(more);
    }

    /// Acquires a permit at once. Returns `None` while all are in use.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> ConnectionPermit {
        if self.most.load(Ordering::Relaxed) != UNLIMITED {
            self.permits.try_acquire().ok()?.forget();
        }
        Some(self.hold())
    }

    /// Acquires a permit; waits for one while all are in use.
    pub(crate) async fn acquire(self: &Arc<Self>) -> ConnectionPermit {
        self.permits.acquire().await.ok()?.forget();
        Some(self.hold())
    }

    fn hold(self: &Arc<Self>) -> HeldPermit {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        let limit = Arc::clone(self);
        HeldPermit { limit }
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
        let limit = &self.limit;
        limit.in_use.fetch_sub(1, Ordering::SeqCst);
        let most = limit.most.load(Ordering::SeqCst);
        // A request that begins or ends in the moment of a first limit may not be counted: free permits never exceed
        // it.
        if most != UNLIMITED && !limit.take_surplus() && limit.permits.available_permits() < most {
            limit.permits.add_permits(1);
        }
    }
}
