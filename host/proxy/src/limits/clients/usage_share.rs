//! Usage of the clients of the active snapshot, as routers of one fleet share it.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::debt_excess::DebtExcess;
use super::limit_clock::LimitClock;
use super::limits::{BucketUse, ClientLimit};
use super::principal::Principal;

/// Handle of the clients whose usage is shared with other routers.
#[derive(Debug, Clone)]
pub struct ClientShare {
    pub(super) clients: Vec<Arc<Principal>>,
    pub(super) clock: LimitClock,
}

impl ClientShare {
    /// Returns the names of the clients. The other functions take places in this list.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.clients.iter().map(|client| &*client.name)
    }

    /// Returns a client's requests in progress at this router. `None` if their number is not limited.
    #[must_use]
    pub fn running(&self, at: usize) -> Option<u32> {
        let client = self.clients.get(at).filter(|client| client.limits_concurrent())?;
        Some(client.ledger.running())
    }

    /// Returns the use of a client's limit.
    #[must_use]
    pub fn usage(&self, at: usize, limit: ClientLimit) -> Option<BucketUse> {
        let client = self.clients.get(at)?;
        Some(client.bucket(limit).usage(self.clock.now(), client.ledger.life))
    }

    /// Replaces the number of a client's requests in progress at other routers.
    pub fn set_running_elsewhere(&self, at: usize, requests: u32) {
        if let Some(client) = self.clients.get(at) {
            client.ledger.set_elsewhere(requests);
        }
    }

    /// Takes from a client's limit what another router took, in microseconds of refill.
    pub fn take_elsewhere(&self, at: usize, limit: ClientLimit, microseconds: i64) {
        if let Some(client) = self.clients.get(at) {
            client
                .bucket(limit)
                .take_elsewhere(microseconds, self.clock.now());
        }
    }

    /// Raises the debt of a client's limit to the value that another router has, in microseconds of refill.
    pub fn adopt(&self, at: usize, limit: ClientLimit, debt_us: u64) {
        if let Some(client) = self.clients.get(at) {
            client.bucket(limit).adopt(debt_us, self.clock.now());
        }
    }

    /// Lowers a client's debt by the amount that no other router has. `debt_us`: another router's debt, in microseconds
    /// of refill.
    pub fn compare(&self, at: usize, limit: ClientLimit, debt_us: u64, excess: &mut DebtExcess) {
        let Some(client) = self.clients.get(at) else {
            return;
        };
        let (bucket, now) = (client.bucket(limit), self.clock.now());
        let own = bucket.usage(now, client.ledger.life);
        if let Some(more) = excess.compare(now / 1_000, own, debt_us) {
            bucket.lower(more);
        }
    }

    /// Divides the limits of all clients by so many routers, because what the others use is not known. 1 is the whole
    /// limit.
    pub fn divide(&self, routers: NonZeroU32) {
        self.clock.divide(routers);
    }
}
