//! Connections to one worker: opened as needed, kept while they may serve again, closed by being dropped.
//!
//! HTTP/2 (`http2.rs`) is spoken where the file says so and the worker does; its connections are shared.
//!
//! HTTP/1.1 with hyper's bare connections, over TLS or not. A general-purpose client would look up its pool by name, rewrite the
//! URI and copy the headers for every request, and run each connection in a task of its own: two more task
//! switches for every chunk of a stream. Here a request takes one short lock, and its own task moves the bytes.
//! A kept connection is therefore looked at only when it is taken again, and now and then (`trim`).

mod connection;
mod dial;
mod http2;
mod switched;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub(crate) use self::connection::{Carrier, Connection, WorkerBody};
pub(crate) use self::dial::ConnectError;
use self::dial::Target;
pub use self::dial::UrlError;
use self::http2::{SharedConnection, SharedStream};
pub(crate) use self::switched::Switched;
use crate::snapshot::Snapshot;
use crate::tls::{Stream, WorkerTls};

/// How many connections each worker of a pool gets, for how long, and how they begin.
#[derive(Debug, Clone)]
pub struct ConnectionsSpec {
    /// Most in use at a time, each by one request; none: as many as requests come.
    pub most: Option<usize>,
    /// Most kept that nobody uses; beyond that the oldest is closed.
    pub idle: usize,
    /// One that nobody used for longer is closed.
    pub idle_for: Duration,
    /// One that is older is not used again: the worker's name is then resolved anew.
    pub age: Duration,
    /// For workers behind `https://`.
    pub tls: Option<Arc<WorkerTls>>,
    /// Whether HTTP/2 is spoken: with workers behind `https://` that choose it, and with all others.
    pub http2: bool,
}

impl Default for ConnectionsSpec {
    fn default() -> Self {
        Self {
            most: None,
            idle: 512,
            idle_for: Duration::from_secs(60),
            age: Duration::from_secs(600),
            tls: None,
            http2: false,
        }
    }
}

impl ConnectionsSpec {
    fn may_keep(&self, kept: &Idle, now: Instant) -> bool {
        now.duration_since(kept.since) <= self.idle_for
            && now.duration_since(kept.connection.born) <= self.age
    }

    /// Whether a connection of HTTP/2 stays; one that carries requests is used until it is old.
    fn may_share(&self, shared: &Shared, now: Instant) -> bool {
        let is_young = now.duration_since(shared.connection.born()) <= self.age;
        let is_used = SharedConnection::streams(&shared.connection) > 0;
        let was_used = now.duration_since(shared.used) <= self.idle_for;
        self.http2 && is_young && (is_used || was_used) && shared.connection.is_open()
    }
}

/// Tells the ways to the workers, which outlive snapshots, what holds from now on.
pub(crate) fn configure(snapshot: &Snapshot) {
    for pool in &snapshot.pools {
        for member in &pool.members {
            let upstream = &member.link.upstream;
            upstream.configure(&pool.connections, &snapshot.edge.via);
        }
    }
}

/// One worker's connections.
#[derive(Debug)]
pub(crate) struct Upstream {
    target: Target,
    /// The router's entry in `Via`, once it is known.
    via: OnceLock<HeaderValue>,
    state: Mutex<State>,
    /// Whether `state.seats` is there.
    is_limited: AtomicBool,
    open: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    /// Newest at the back, where they are taken from: those in front grow old and go.
    idle: VecDeque<Idle>,
    /// Of HTTP/2, in use or not. Requests fill the first ones, so that the others fall idle.
    shared: Vec<Shared>,
    spec: ConnectionsSpec,
    /// For connections in use, where there is a limit.
    seats: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

#[derive(Debug)]
struct Shared {
    connection: Arc<SharedConnection>,
    /// When a request was last sent on it.
    used: Instant,
}

/// The right to use one connection, where that is limited.
pub(crate) type Seat = Option<OwnedSemaphorePermit>;

impl Upstream {
    pub(crate) fn new(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            target: Target::new(url)?,
            via: OnceLock::new(),
            state: Mutex::default(),
            is_limited: AtomicBool::new(false),
            open: Arc::default(),
        })
    }

    /// The same where only `http://` is spoken.
    pub(crate) fn plain(url: &str) -> Result<Self, UrlError> {
        let upstream = Self::new(url)?;
        if upstream.target.is_secure() {
            return Err(UrlError::Unsupported { url: url.into() });
        }
        Ok(upstream)
    }

    /// Changes what holds from now on. Connections in use stay as they are; kept ones that began otherwise are closed.
    pub(crate) fn configure(&self, spec: &ConnectionsSpec, via: &HeaderValue) {
        let _ = self.via.set(via.clone());
        let mut state = self.lock();
        if state.spec.most != spec.most {
            let seats = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
            state.seats = spec.most.map(seats);
            self.is_limited.store(spec.most.is_some(), Ordering::Relaxed);
        }
        let address = |tls: &Option<Arc<WorkerTls>>| tls.as_ref().map(Arc::as_ptr);
        if address(&state.spec.tls) != address(&spec.tls) {
            state.idle.clear();
            state.shared.clear();
        }
        if !spec.http2 {
            state.shared.clear();
        }
        state.spec = spec.clone();
    }

    /// The `Host` of requests.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.target.host
    }

    /// The router's entry in `Via`.
    pub(crate) fn via(&self) -> Option<&HeaderValue> {
        self.via.get()
    }

    /// Connections open now, idle or not.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits, where so many connections are in use as may be.
    pub(crate) async fn seat(&self, limit: Duration) -> Result<Seat, ConnectError> {
        if !self.is_limited.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(seats) = self.lock().seats.clone() else {
            return Ok(None);
        };
        match timeout(limit, seats.acquire_owned()).await {
            Ok(seat) => Ok(seat.ok()),
            Err(_) => Err(ConnectError::NoRoom {
                address: self.target.address.clone(),
                limit,
            }),
        }
    }

    /// A place on a shared connection, or a kept one that is ready; the seat is its from then on. It may still turn out to have
    /// been closed by the worker meanwhile.
    pub(crate) fn checkout(&self, seat: &mut Seat) -> Option<Carrier> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(stream) = state.place(seat, now) {
            return Some(Carrier::Shared(stream));
        }
        self.take_idle(state, seat, now).map(Carrier::Own)
    }

    /// A kept connection that no other request uses.
    pub(crate) fn checkout_own(&self, seat: &mut Seat) -> Option<Connection> {
        self.take_idle(self.lock(), seat, Instant::now())
    }

    fn take_idle<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        seat: &mut Seat,
        now: Instant,
    ) -> Option<Connection> {
        loop {
            let mut kept = state.idle.pop_back()?;
            let may_serve = state.spec.may_keep(&kept, now);
            drop(state);
            if may_serve && kept.connection.is_ready() {
                kept.connection.seat = seat.take();
                return Some(kept.connection);
            }
            state = self.lock();
        }
    }

    /// Closes the kept connections that nobody is to use again: too old, unused for too long, or closed by the worker, whose
    /// socket would otherwise stay half-open here until somebody wanted it.
    pub(crate) fn trim(&self, now: Instant) {
        let mut state = self.lock();
        let State {
            idle, shared, spec, ..
        } = &mut *state;
        idle.retain_mut(|kept| spec.may_keep(kept, now) && kept.connection.is_ready());
        shared.retain(|shared| spec.may_share(shared, now));
    }

    /// Keeps the connection of an answer that was read to its end.
    pub(crate) fn checkin(&self, answer: WorkerBody) {
        let now = Instant::now();
        let Some(mut connection) = answer.into_connection() else {
            return;
        };
        connection.seat = None;
        let mut state = self.lock();
        let State { idle, spec, .. } = &mut *state;
        if now.duration_since(connection.born) > spec.age {
            return;
        }
        let aged = |kept: &Idle| !spec.may_keep(kept, now);
        while !idle.is_empty() && (idle.len() >= spec.idle || idle.front().is_some_and(aged)) {
            idle.pop_front();
        }
        if idle.len() < spec.idle {
            idle.push_back(Idle {
                connection,
                since: now,
            });
        }
    }

    /// Opens a connection, on the seat: of HTTP/2 where that is spoken.
    pub(crate) async fn connect(&self, seat: Seat, limit: Duration) -> Result<Carrier, ConnectError> {
        let offers_http2 = self.lock().spec.http2;
        let (stream, is_http2) = self.open_stream(limit, offers_http2).await?;
        if is_http2 {
            return Box::pin(self.share(stream, seat)).await;
        }
        self.begin(stream, seat).await.map(Carrier::Own)
    }

    /// Opens a connection of HTTP/1.1, on the seat.
    pub(crate) async fn connect_own(&self, seat: Seat, limit: Duration) -> Result<Connection, ConnectError> {
        let (stream, _) = self.open_stream(limit, false).await?;
        self.begin(stream, seat).await
    }

    async fn open_stream(&self, limit: Duration, offers_http2: bool) -> Result<(Stream, bool), ConnectError> {
        let tls = self.lock().spec.tls.clone();
        // Rarely done and large, with TLS: apart from what every request carries.
        Box::pin(self.target.open((tls, offers_http2), limit)).await
    }

    async fn begin(&self, stream: Stream, seat: Seat) -> Result<Connection, ConnectError> {
        Connection::begin(stream, seat, Arc::clone(&self.open))
            .await
            .map_err(|source| self.handshake_failed(source))
    }

    /// Begins HTTP/2 and keeps the connection, with a place on it.
    async fn share(&self, stream: Stream, mut seat: Seat) -> Result<Carrier, ConnectError> {
        let origin = self.target.origin.clone();
        let begun = SharedConnection::begin(stream, origin, Arc::clone(&self.open)).await;
        let connection = begun.map_err(|source| self.handshake_failed(source))?;
        let stream = SharedConnection::first_place(&connection, &mut seat);
        let used = Instant::now();
        let mut state = self.lock();
        if state.spec.http2 {
            state.shared.push(Shared { connection, used });
        }
        Ok(Carrier::Shared(stream))
    }

    fn handshake_failed(&self, source: hyper::Error) -> ConnectError {
        ConnectError::Handshake {
            address: self.target.address.clone(),
            source,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A place on the first shared connection that has one.
    fn place(&mut self, seat: &mut Seat, now: Instant) -> Option<SharedStream> {
        let Self { shared, spec, .. } = self;
        shared.iter_mut().find_map(|shared| {
            let may_serve = spec.may_share(shared, now);
            let stream = may_serve.then(|| SharedConnection::place(&shared.connection, seat))??;
            shared.used = now;
            Some(stream)
        })
    }
}

#[cfg(test)]
mod tests;
