//! Connection limiter: bounds all connections and those of one address, and closes idle ones for waiting ones.
//!
//! Beyond the limit, a few more connections are accepted into an overflow area. There `/health` and `/readyz` are
//! answered at once, and every other request waits for a connection slot. A full overflow area makes room for the next
//! connection, so that the two pages are always answered. While the process is short of memory, every new connection
//! starts in the overflow area.

mod fronts;
mod register;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::fronts::is_front;
pub(crate) use self::fronts::{Forwarded, Sender, sender};
use self::register::{ConnectionState, Register, since};
use crate::base::reply::Refusal;
use crate::base::throttle::Throttle;
use crate::limits::edge_settings::EdgeSettings;
use crate::limits::memory::Memory;
use crate::observe::edge_metrics::{CloseReason, EdgeMetrics};

/// Interval at which a waiting connection looks for an idle one to close.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Connections accepted beyond the limit.
const OVERFLOW_CONNECTIONS: usize = 64;
/// Divisor: one address may have this fraction of all slots.
const ADDRESS_PART: usize = 4;
/// Paths that are answered without a slot.
const ALWAYS_ANSWERED: [&str; 2] = ["/health", "/readyz"];

/// Parameters of a connection limiter.
#[derive(Debug)]
pub(crate) struct ConnectionLimiterSpec {
    /// Maximum of connections.
    pub(crate) limit: usize,
    /// Configuration key or listener of the limit, for the log.
    pub(crate) key: &'static str,
    /// Gauge of the slots in use.
    pub(crate) taken: Gauge,
    pub(crate) edge: EdgeMetrics,
    /// Memory monitor. While memory is short, a new connection gets no slot before its first request.
    pub(crate) memory: Arc<Memory>,
    /// Cancelled when all connections are to end.
    pub(crate) stop: CancellationToken,
}

/// Limiter of concurrent connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    spec: ConnectionLimiterSpec,
    slots: Arc<Semaphore>,
    overflow: Arc<Semaphore>,
    full_log: Throttle,
    register: Register,
}

/// A connection's slot, or its place in the overflow area. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    /// Permit, replaced when the connection gets a slot.
    permit: Mutex<OwnedSemaphorePermit>,
    limiter: Arc<ConnectionLimiter>,
    state: Arc<ConnectionState>,
    peer: Option<IpAddr>,
    /// Maximum of connections of its address, if bounded.
    most_of_address: Option<usize>,
}

/// Slot of a further stream of an HTTP/2 connection. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    /// `None` until the slot is granted.
    permit: Option<OwnedSemaphorePermit>,
    connection: Arc<ConnectionSlot>,
}

/// Limit on the connections of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressLimit {
    /// A quarter of all, or all for an address of the router's own machine.
    Part,
    Of(usize),
    /// All: the peer is a trusted proxy, and its clients are counted by their own addresses.
    Front,
}

impl AddressLimit {
    /// Returns the limit on the connections of a peer.
    pub(crate) fn of_peer(edge: &EdgeSettings, peer: Option<IpAddr>) -> Self {
        match peer {
            Some(peer) if is_front(&edge.fronts, peer) => Self::Front,
            _ => Self::of_client(edge),
        }
    }

    /// Returns the limit on connections and requests of an address that is not a trusted proxy's.
    pub(crate) fn of_client(edge: &EdgeSettings) -> Self {
        edge.per_address.map_or(Self::Part, Self::Of)
    }
}

/// Request in progress on a connection, until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    state: Arc<ConnectionState>,
    /// Count of a client behind a trusted proxy.
    forwarded: Option<Forwarded>,
}

/// Reason why a request got no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum NoConnectionSlot {
    #[error("all connections are taken, and others wait")]
    Full,
    #[error("its address has as many connections and requests as it may")]
    AddressFull,
    #[error("the listener is closing")]
    Closing,
}

/// Returns `true` if the path is answered regardless of any shortage.
pub(crate) fn is_always_answered(path: &str) -> bool {
    ALWAYS_ANSWERED.contains(&path)
}

impl ConnectionLimiter {
    pub(crate) fn new(spec: ConnectionLimiterSpec) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(spec.limit.min(Semaphore::MAX_PERMITS))),
            overflow: Arc::new(Semaphore::new(OVERFLOW_CONNECTIONS)),
            full_log: Throttle::default(),
            register: Register::default(),
            spec,
        })
    }

    /// Admits a connection. Returns `None` if its address has reached its limit.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        per_address: AddressLimit,
    ) -> Option<ConnectionSlot> {
        let most_of_address = peer.and_then(|peer| self.limit_of(peer, per_address));
        if let Some(limit) = most_of_address
            && self.register.count(peer) >= limit
        {
            let Some(idle) = self.register.longest_idle_of(peer, Instant::now()) else {
                self.spec.edge.turned(CloseReason::AddressFull);
                return None;
            };
            self.displace(&idle);
        }
        let (permit, has_slot) = self.place().await;
        if has_slot {
            self.spec.taken.inc();
        }
        Some(ConnectionSlot {
            permit: Mutex::new(permit),
            state: self.register.enter(peer, has_slot, &self.spec.stop),
            limiter: Arc::clone(self),
            peer,
            most_of_address,
        })
    }

    fn limit_of(&self, peer: IpAddr, per_address: AddressLimit) -> Option<usize> {
        match per_address {
            AddressLimit::Of(limit) => Some(limit),
            AddressLimit::Part if !peer.to_canonical().is_loopback() => {
                Some((self.spec.limit / ADDRESS_PART).max(1))
            }
            AddressLimit::Part | AddressLimit::Front => None,
        }
    }

    /// Takes a slot, or else waits for a place in the overflow area.
    async fn place(&self) -> (OwnedSemaphorePermit, bool) {
        loop {
            if !self.spec.memory.refuses()
                && let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned()
            {
                return (permit, true);
            }
            if let Ok(permit) = Arc::clone(&self.overflow).try_acquire_owned() {
                if self.slots.available_permits() == 0 {
                    self.log_full();
                }
                return (permit, false);
            }
            if let Some(last) = self.register.oldest_in_overflow(Instant::now()) {
                self.displace(&last);
            }
            let waiting = timeout(LOOK_EVERY, Arc::clone(&self.overflow).acquire_owned());
            if let Ok(Ok(permit)) = waiting.await {
                return (permit, false);
            }
        }
    }

    /// Closes every connection that has been idle for at least a second.
    pub(crate) fn end_idle(&self) {
        for idle in self.register.all_idle(Instant::now()) {
            self.displace(&idle);
        }
    }

    /// Closes the connection that has been idle for longest, if no slot is free.
    fn make_room(&self, now: Instant) {
        if self.slots.available_permits() == 0
            && let Some(idle) = self.register.seek_idle(now, LOOK_EVERY)
        {
            self.displace(&idle);
        }
    }

    fn log_full(&self) {
        if let Some(held_back) = self.full_log.pass() {
            warn!(
                limit = self.spec.limit,
                key = self.spec.key,
                held_back,
                "connection limit reached: further clients wait"
            );
        }
    }

    fn displace(&self, state: &ConnectionState) {
        state.displace();
        self.spec.edge.turned(CloseReason::MadeRoom);
    }
}

impl ConnectionSlot {
    /// Marks the beginning of a request on this connection.
    pub(crate) fn begin_request(&self) -> ActiveRequest {
        self.state.idle_since.store(0, Ordering::Relaxed);
        ActiveRequest {
            state: Arc::clone(&self.state),
            forwarded: None,
        }
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Counts a request of a client behind a trusted proxy. Returns `None` if its address has reached its limit.
    pub(crate) fn forwarded(&self, client: IpAddr, per_address: AddressLimit) -> Option<Forwarded> {
        let limit = self.limiter.limit_of(client, per_address);
        Forwarded::begin(&self.limiter, client, limit)
    }

    /// Returns `true` if the connection has a slot, i.e. has left the overflow area.
    pub(crate) fn is_acquired(&self) -> bool {
        self.state.has_slot.load(Ordering::Relaxed)
    }

    /// Waits for a slot if the connection has none and the request at `path` needs one. Meanwhile the connections that
    /// have been idle for longest are closed.
    pub(crate) async fn acquire(&self, path: &str) -> Result<(), NoConnectionSlot> {
        if self.is_acquired() || is_always_answered(path) {
            return Ok(());
        }
        let permit = self.free_slot().await?;
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        self.state.has_slot.store(true, Ordering::Relaxed);
        self.limiter.spec.taken.inc();
        Ok(())
    }

    /// Waits for an additional slot: each concurrent request counts as a connection of its address. Returns `None` if
    /// the request at `path` needs no slot.
    pub(crate) async fn acquire_for_stream(
        self: &Arc<Self>,
        path: &str,
    ) -> Result<Option<StreamSlot>, NoConnectionSlot> {
        if is_always_answered(path) {
            return Ok(None);
        }
        if let Some(peer) = self.peer
            && !self.limiter.register.add(peer, self.most_of_address)
        {
            return Err(NoConnectionSlot::AddressFull);
        }
        // Dropping it leaves the queue if the wait is cancelled.
        let mut stream_slot = StreamSlot {
            permit: None,
            connection: Arc::clone(self),
        };
        stream_slot.permit = Some(self.free_slot().await?);
        self.limiter.spec.taken.inc();
        Ok(Some(stream_slot))
    }

    /// Takes a free slot. If there is none, waits for one and meanwhile closes the connections that have been idle for
    /// longest.
    async fn free_slot(&self) -> Result<OwnedSemaphorePermit, NoConnectionSlot> {
        let limiter = &self.limiter;
        // A free slot is taken before any connection is closed for it.
        if let Ok(permit) = Arc::clone(&limiter.slots).try_acquire_owned() {
            return Ok(permit);
        }
        let mut slot = pin!(Arc::clone(&limiter.slots).acquire_owned());
        loop {
            limiter.make_room(Instant::now());
            let granted = tokio::select! {
                biased;
                granted = timeout(LOOK_EVERY, slot.as_mut()) => granted,
                () = self.stopped() => {
                    let is_closing = limiter.spec.stop.is_cancelled();
                    return Err(if is_closing { NoConnectionSlot::Closing } else { NoConnectionSlot::Full });
                }
            };
            if let Ok(permit) = granted {
                return permit.map_err(|_| NoConnectionSlot::Closing);
            }
        }
    }

    /// Returns the time by which the client must have read the current response, if there is one.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.state.deadline()
    }

    /// Resolves when the connection is to end once it is idle.
    pub(crate) async fn stopped(&self) {
        self.state.stop.cancelled().await;
    }

    /// Returns `true` if the connection is displaced by another and has no request in progress.
    pub(crate) fn must_close(&self) -> bool {
        self.state.is_displaced.load(Ordering::Relaxed) && self.state.is_idle()
    }
}

impl ActiveRequest {
    /// Assigns the connection's current request to a client behind a trusted proxy.
    pub(crate) fn is_of(&mut self, forwarded: Option<Forwarded>) {
        self.forwarded = forwarded;
    }

    /// Sets the time by which the client must have read the response.
    pub(crate) fn must_end(&self, deadline: Instant) {
        let ends = since(self.state.epoch, deadline);
        self.state.ends.store(ends, Ordering::Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.state.ends.store(0, Ordering::Relaxed);
        let now = since(self.state.epoch, Instant::now());
        self.state.idle_since.store(now, Ordering::Relaxed);
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let connection = &self.connection;
        if let Some(peer) = connection.peer {
            connection.limiter.register.remove(peer);
        }
        if self.permit.is_some() {
            connection.limiter.spec.taken.dec();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limiter.register.leave(&self.state);
        if self.is_acquired() {
            self.limiter.spec.taken.dec();
        }
    }
}

impl From<NoConnectionSlot> for Refusal {
    fn from(none: NoConnectionSlot) -> Self {
        match none {
            NoConnectionSlot::Full => Self::ConnectionsFull,
            NoConnectionSlot::AddressFull => Self::AddressFull,
            NoConnectionSlot::Closing => Self::ShuttingDown,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
