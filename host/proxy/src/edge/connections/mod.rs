//! Connection limiter: bounds all connections and those of one address, and closes idle ones for waiting ones.
//!
//! Beyond the limit, a few more connections are accepted into a lobby. There `/health` and `/readyz` are answered at
//! once, and every other request waits for a connection slot. A full lobby makes room for the next connection, so that
//! the two pages are always answered. While the process is short of memory, every new connection starts in the lobby.

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
const LOBBY: usize = 64;
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
    seats: Arc<Semaphore>,
    lobby: Arc<Semaphore>,
    full_log: Throttle,
    register: Register,
}

/// A connection's slot or its place in the lobby. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    /// Permit, replaced when the connection gets a slot.
    permit: Mutex<OwnedSemaphorePermit>,
    room: Arc<ConnectionLimiter>,
    standing: Arc<ConnectionState>,
    peer: Option<IpAddr>,
    /// Maximum of connections of its address, if bounded.
    most_of_address: Option<usize>,
}

/// Slot of a further request on a multiplexed connection. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct SeatBeside {
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
pub(crate) struct RequestTurn {
    standing: Arc<ConnectionState>,
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
            seats: Arc::new(Semaphore::new(spec.limit.min(Semaphore::MAX_PERMITS))),
            lobby: Arc::new(Semaphore::new(LOBBY)),
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
        let (permit, is_seated) = self.place().await;
        if is_seated {
            self.spec.taken.inc();
        }
        Some(ConnectionSlot {
            permit: Mutex::new(permit),
            standing: self.register.enter(peer, is_seated, &self.spec.stop),
            room: Arc::clone(self),
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

    /// Takes a slot, or else waits for a place in the lobby.
    async fn place(&self) -> (OwnedSemaphorePermit, bool) {
        loop {
            if !self.spec.memory.refuses()
                && let Ok(permit) = Arc::clone(&self.seats).try_acquire_owned()
            {
                return (permit, true);
            }
            if let Ok(permit) = Arc::clone(&self.lobby).try_acquire_owned() {
                if self.seats.available_permits() == 0 {
                    self.log_full();
                }
                return (permit, false);
            }
            if let Some(last) = self.register.longest_in_lobby(Instant::now()) {
                self.displace(&last);
            }
            let waiting = timeout(LOOK_EVERY, Arc::clone(&self.lobby).acquire_owned());
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
        if self.seats.available_permits() == 0
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

    fn displace(&self, standing: &ConnectionState) {
        standing.displace();
        self.spec.edge.turned(CloseReason::MadeRoom);
    }
}

impl ConnectionSlot {
    /// Marks the beginning of a request on this connection.
    pub(crate) fn turn(&self) -> RequestTurn {
        self.standing.idle_since.store(0, Ordering::Relaxed);
        RequestTurn {
            standing: Arc::clone(&self.standing),
            forwarded: None,
        }
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Counts a request of a client behind a trusted proxy. Returns `None` if its address has reached its limit.
    pub(crate) fn forwarded(&self, client: IpAddr, per_address: AddressLimit) -> Option<Forwarded> {
        let limit = self.room.limit_of(client, per_address);
        Forwarded::begin(&self.room, client, limit)
    }

    /// Returns `true` if the connection has a slot, i.e. has left the lobby.
    pub(crate) fn is_seated(&self) -> bool {
        self.standing.is_seated.load(Ordering::Relaxed)
    }

    /// Waits for a slot if the connection has none and the request at `path` needs one. Meanwhile the connections that
    /// have been idle for longest are closed.
    pub(crate) async fn sit(&self, path: &str) -> Result<(), NoConnectionSlot> {
        if self.is_seated() || is_always_answered(path) {
            return Ok(());
        }
        let permit = self.free_seat().await?;
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        self.standing.is_seated.store(true, Ordering::Relaxed);
        self.room.spec.taken.inc();
        Ok(())
    }

    /// Waits for an additional slot: each concurrent request counts as a connection of its address. Returns `None` if
    /// the request at `path` needs no slot.
    pub(crate) async fn sit_beside(
        self: &Arc<Self>,
        path: &str,
    ) -> Result<Option<SeatBeside>, NoConnectionSlot> {
        if is_always_answered(path) {
            return Ok(None);
        }
        if let Some(peer) = self.peer
            && !self.room.register.add(peer, self.most_of_address)
        {
            return Err(NoConnectionSlot::AddressFull);
        }
        // Dropping it leaves the queue if the wait is cancelled.
        let mut beside = SeatBeside {
            permit: None,
            connection: Arc::clone(self),
        };
        beside.permit = Some(self.free_seat().await?);
        self.room.spec.taken.inc();
        Ok(Some(beside))
    }

    /// Takes a free slot. If there is none, waits for one and meanwhile closes the connections that have been idle for
    /// longest.
    async fn free_seat(&self) -> Result<OwnedSemaphorePermit, NoConnectionSlot> {
        let room = &self.room;
        // A free slot is taken before any connection is closed for it.
        if let Ok(permit) = Arc::clone(&room.seats).try_acquire_owned() {
            return Ok(permit);
        }
        let mut seat = pin!(Arc::clone(&room.seats).acquire_owned());
        loop {
            room.make_room(Instant::now());
            let seated = tokio::select! {
                biased;
                seated = timeout(LOOK_EVERY, seat.as_mut()) => seated,
                () = self.stopped() => {
                    let is_closing = room.spec.stop.is_cancelled();
                    return Err(if is_closing { NoConnectionSlot::Closing } else { NoConnectionSlot::Full });
                }
            };
            if let Ok(permit) = seated {
                return permit.map_err(|_| NoConnectionSlot::Closing);
            }
        }
    }

    /// Returns the time by which the client must have read the current response, if there is one.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.standing.deadline()
    }

    /// Resolves when the connection is to end once it is idle.
    pub(crate) async fn stopped(&self) {
        self.standing.stop.cancelled().await;
    }

    /// Returns `true` if the connection is displaced by another and has no request in progress.
    pub(crate) fn is_given_up(&self) -> bool {
        self.standing.is_displaced.load(Ordering::Relaxed) && self.standing.is_idle()
    }
}

impl RequestTurn {
    /// Assigns the connection's current request to a client behind a trusted proxy.
    pub(crate) fn is_of(&mut self, forwarded: Option<Forwarded>) {
        self.forwarded = forwarded;
    }

    /// Sets the time by which the client must have read the response.
    pub(crate) fn must_end(&self, deadline: Instant) {
        let ends = since(self.standing.epoch, deadline);
        self.standing.ends.store(ends, Ordering::Relaxed);
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        self.standing.ends.store(0, Ordering::Relaxed);
        let now = since(self.standing.epoch, Instant::now());
        self.standing.idle_since.store(now, Ordering::Relaxed);
    }
}

impl Drop for SeatBeside {
    fn drop(&mut self) {
        let connection = &self.connection;
        if let Some(peer) = connection.peer {
            connection.room.register.remove(peer);
        }
        if self.permit.is_some() {
            connection.room.spec.taken.dec();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.room.register.leave(&self.standing);
        if self.is_seated() {
            self.room.spec.taken.dec();
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
