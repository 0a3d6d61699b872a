//! Connection pool of one worker: opens connections on demand, keeps idle ones for reuse, closes by drop.
//!
//! HTTP/2 (`http2.rs`) is used if it is configured and the worker supports it. Its connections are shared.
//!
//! HTTP/1.1 uses hyper's connections directly. A general-purpose client would look up its pool by name, rewrite the
//! URI and copy the headers of every request. It would also run each connection in its own task, which costs two
//! task switches per chunk. Here a request takes one short lock, and its own task moves the bytes.
//! An idle connection is polled only when it is reused, and periodically by [`ConnectionPool::trim`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::time::timeout;

use crate::address::{UrlError, WorkerAddress};
use crate::connection::{Connection, RequestChannel, WorkerBody};
use crate::dial::{ConnectError, DialOptions, DialedStream};
use crate::http2::{SharedConnection, SharedStream};
use crate::permit::{ConnectionLimit, ConnectionPermit};
use crate::server_error::ServerClientError;
use crate::tls::WorkerTls;

/// Connection limits, lifetimes and protocols of a worker.
#[derive(Debug, Clone)]
pub struct ConnectionsSpec {
    /// Maximum connections in use, each by one request. `None`: unlimited.
    pub most: Option<usize>,
    /// Maximum idle connections. Beyond it the oldest is closed.
    pub idle: usize,
    /// Idle timeout.
    pub idle_for: Duration,
    /// Maximum age. An older connection is not reused, so the worker's name is resolved again.
    pub age: Duration,
    /// TLS settings for `https://` workers.
    pub tls: Option<Arc<WorkerTls>>,
    /// Set if HTTP/2 is offered. Workers behind `https://` choose by ALPN; all others must support it.
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
    fn may_keep(&self, kept: &IdleConnection, now: Instant) -> bool {
        now.duration_since(kept.since) <= self.idle_for
            && now.duration_since(kept.connection.opened_at) <= self.age
    }

    /// Returns whether an HTTP/2 connection stays. One with open streams stays until its maximum age.
    fn may_share(&self, shared: &SharedEntry, now: Instant) -> bool {
        let is_young = now.duration_since(shared.connection.opened_at()) <= self.age;
        let is_used = SharedConnection::stream_count(&shared.connection) > 0;
        let was_used = now.duration_since(shared.last_used) <= self.idle_for;
        self.http2 && is_young && (is_used || was_used) && shared.connection.is_open()
    }
}

/// Connection pool of one worker.
#[derive(Debug)]
pub struct ConnectionPool {
    address: WorkerAddress,
    /// Entry that the router adds to `Via`. Set once.
    via: OnceLock<HeaderValue>,
    state: Mutex<PoolConnections>,
    /// Limit of the connections in use.
    limit: Arc<ConnectionLimit>,
    /// Set once a connection was refused, until [`Self::take_refused`].
    was_refused: AtomicBool,
    open: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct PoolConnections {
    /// LIFO: reuse takes the newest at the back, so the ones in front reach their idle timeout.
    idle: VecDeque<IdleConnection>,
    /// HTTP/2 connections, with or without streams. Requests fill the first ones, so the others become idle.
    shared: Vec<SharedEntry>,
    spec: ConnectionsSpec,
    /// Number of changes of the TLS settings. Connections with earlier ones are not used for another request.
    tls_version: u64,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Connection,
    since: Instant,
}

#[derive(Debug)]
struct SharedEntry {
    connection: Arc<SharedConnection>,
    /// Time of its last request.
    last_used: Instant,
}

impl ConnectionPool {
    /// Creates the pool of the worker at `url`: `http://host:port` or `https://host:port`.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn new(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            address: WorkerAddress::parse(url)?,
            via: OnceLock::new(),
            state: Mutex::default(),
            limit: ConnectionLimit::unlimited(),
            was_refused: AtomicBool::new(false),
            open: Arc::default(),
        })
    }

    /// Creates the pool of a server that speaks `http://` only.
    ///
    /// # Errors
    /// [`UrlError`], also for `https://`.
    pub fn plain(url: &str) -> Result<Self, UrlError> {
        let pool = Self::new(url)?;
        if pool.address.is_secure() {
            return Err(UrlError::Unsupported { url: url.into() });
        }
        Ok(pool)
    }

    /// Applies a new configuration. Requests in progress are unaffected. Connections with other TLS settings are closed
    /// once they are idle.
    pub fn configure(&self, spec: &ConnectionsSpec, via: &HeaderValue) {
        let _ = self.via.set(via.clone());
        let mut state = self.lock();
        self.limit.change(spec.most);
        let address = |tls: &Option<Arc<WorkerTls>>| tls.as_ref().map(Arc::as_ptr);
        if address(&state.spec.tls) != address(&spec.tls) {
            state.idle.clear();
            state.shared.clear();
            state.tls_version += 1;
        }
        if !spec.http2 {
            state.shared.clear();
        }
        state.spec = spec.clone();
    }

    /// Creates the pool of another server with default connections. Requests get no entry in `Via`.
    ///
    /// `tls` is used for `https://` servers. `None` means the system's trusted authorities.
    pub(crate) fn of_server(url: &str, tls: Option<Arc<WorkerTls>>) -> Result<Self, ServerClientError> {
        let pool = Self::new(url)?;
        if pool.address.is_secure() {
            let tls = tls.map_or_else(WorkerTls::of_system, Ok)?;
            pool.lock().spec.tls = Some(tls);
        }
        Ok(pool)
    }

    /// Returns the value of the `Host` header.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.address.host
    }

    /// Returns the entry that the router adds to `Via`.
    pub(crate) fn via(&self) -> Option<&HeaderValue> {
        self.via.get()
    }

    /// Returns the number of open connections, in use or idle.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Records that a connection to the worker could not be opened. The pool does so for its own connections.
    pub fn note_failure(&self, error: &ConnectError) {
        if error.is_refused() {
            self.was_refused.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if a connection was refused since the last call. The worker's process has then ended, and its
    /// cache with it.
    pub fn take_refused(&self) -> bool {
        self.was_refused.load(Ordering::Relaxed) && self.was_refused.swap(false, Ordering::Relaxed)
    }

    /// Acquires a connection permit; waits for one while all are in use.
    pub(crate) async fn acquire(&self, limit: Duration) -> Result<ConnectionPermit, ConnectError> {
        let free = self.limit.try_acquire();
        if free.is_some() {
            return Ok(free);
        }
        // Boxed: most requests find a permit, and would carry this size.
        match Box::pin(timeout(limit, self.limit.acquire())).await {
            Ok(permit) => Ok(permit),
            Err(_) => Err(ConnectError::NoPermit {
                address: self.address.address.clone(),
                limit,
            }),
        }
    }

    /// Takes a stream of a shared connection, or an idle connection, and moves the permit into it.
    ///
    /// The worker can have closed it in the meantime.
    pub(crate) fn checkout(&self, permit: &mut ConnectionPermit) -> Option<RequestChannel> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(stream) = state.reserve_stream(permit, now) {
            return Some(RequestChannel::Shared(stream));
        }
        self.take_idle(state, permit, now).map(RequestChannel::Exclusive)
    }

    /// Takes an idle HTTP/1.1 connection.
    pub(crate) fn checkout_exclusive(&self, permit: &mut ConnectionPermit) -> Option<Connection> {
        self.take_idle(self.lock(), permit, Instant::now())
    }

    fn take_idle<'s>(
        &'s self,
        mut state: MutexGuard<'s, PoolConnections>,
        permit: &mut ConnectionPermit,
        now: Instant,
    ) -> Option<Connection> {
        loop {
            let mut kept = state.idle.pop_back()?;
            let may_serve = state.spec.may_keep(&kept, now);
            drop(state);
            if may_serve && kept.connection.is_ready() {
                kept.connection.permit = permit.take();
                return Some(kept.connection);
            }
            state = self.lock();
        }
    }

    /// Closes connections that are too old, idle for too long, or closed by the worker.
    ///
    /// Without it, a socket that the worker closed would stay half-open until its next use.
    pub fn trim(&self, now: Instant) {
        let mut state = self.lock();
        let PoolConnections {
            idle, shared, spec, ..
        } = &mut *state;
        idle.retain_mut(|kept| spec.may_keep(kept, now) && kept.connection.is_ready());
        shared.retain(|shared| spec.may_share(shared, now));
    }

    /// Returns the connection of a response that was read to its end to the pool.
    pub fn checkin(&self, body: WorkerBody) {
        let now = Instant::now();
        let Some(mut connection) = body.into_connection() else {
            return;
        };
        connection.permit = None;
        let mut state = self.lock();
        let PoolConnections {
            idle,
            spec,
            tls_version,
            ..
        } = &mut *state;
        if now.duration_since(connection.opened_at) > spec.age || connection.tls_version != *tls_version {
            return;
        }
        let aged = |kept: &IdleConnection| !spec.may_keep(kept, now);
        while !idle.is_empty() && (idle.len() >= spec.idle || idle.front().is_some_and(aged)) {
            idle.pop_front();
        }
        if idle.len() < spec.idle {
            idle.push_back(IdleConnection {
                connection,
                since: now,
            });
        }
    }

    /// Opens a connection and closes or shares it: a check that the worker accepts connections.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn check_connect(&self, limit: Duration) -> Result<(), ConnectError> {
        self.connect(None, limit).await.map(drop)
    }

    /// Opens a connection with the permit: HTTP/2 if it is enabled and supported.
    pub(crate) async fn connect(
        &self,
        permit: ConnectionPermit,
        limit: Duration,
    ) -> Result<RequestChannel, ConnectError> {
        let offers_http2 = self.lock().spec.http2;
        let (dialed, tls_version) = self.dial(limit, offers_http2).await?;
        if dialed.is_http2 {
            return Box::pin(self.share(dialed, tls_version, permit)).await;
        }
        self.handshake(dialed, tls_version, permit)
            .await
            .map(RequestChannel::Exclusive)
    }

    /// Opens an HTTP/1.1 connection with the permit.
    pub(crate) async fn connect_exclusive(
        &self,
        permit: ConnectionPermit,
        limit: Duration,
    ) -> Result<Connection, ConnectError> {
        let (dialed, tls_version) = self.dial(limit, false).await?;
        self.handshake(dialed, tls_version, permit).await
    }

    /// Opens a stream. Returns it with the version of its TLS settings.
    async fn dial(&self, limit: Duration, offers_http2: bool) -> Result<(DialedStream, u64), ConnectError> {
        let (tls, tls_version) = {
            let state = self.lock();
            (state.spec.tls.clone(), state.tls_version)
        };
        // Boxed: rare and large because of TLS, so the future of a request does not carry it.
        let dialed = Box::pin(self.address.dial(DialOptions { tls, offers_http2 }, limit)).await;
        let dialed = dialed.inspect_err(|error| self.note_failure(error))?;
        Ok((dialed, tls_version))
    }

    async fn handshake(
        &self,
        dialed: DialedStream,
        tls_version: u64,
        permit: ConnectionPermit,
    ) -> Result<Connection, ConnectError> {
        let open = Arc::clone(&self.open);
        Connection::handshake(dialed.stream, dialed.peer, permit, open, tls_version)
            .await
            .map_err(|source| self.handshake_failed(source))
    }

    /// Starts HTTP/2, adds the connection to the pool and returns its first stream.
    async fn share(
        &self,
        dialed: DialedStream,
        tls_version: u64,
        mut permit: ConnectionPermit,
    ) -> Result<RequestChannel, ConnectError> {
        let origin = self.address.origin.clone();
        let open = Arc::clone(&self.open);
        let opened = SharedConnection::handshake(dialed.stream, dialed.peer, origin, open).await;
        let connection = opened.map_err(|source| self.handshake_failed(source))?;
        let stream = SharedConnection::first_stream(&connection, &mut permit);
        let last_used = Instant::now();
        let mut state = self.lock();
        if state.spec.http2 && state.tls_version == tls_version {
            state.shared.push(SharedEntry {
                connection,
                last_used,
            });
        }
        Ok(RequestChannel::Shared(stream))
    }

    fn handshake_failed(&self, source: hyper::Error) -> ConnectError {
        ConnectError::Handshake {
            address: self.address.address.clone(),
            source,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolConnections> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolConnections {
    /// Reserves a stream on the first shared connection with capacity.
    fn reserve_stream(&mut self, permit: &mut ConnectionPermit, now: Instant) -> Option<SharedStream> {
        let Self { shared, spec, .. } = self;
        shared.iter_mut().find_map(|shared| {
            let may_serve = spec.may_share(shared, now);
            let stream = may_serve.then(|| SharedConnection::reserve(&shared.connection, permit))??;
            shared.last_used = now;
            Some(stream)
        })
    }
}

#[cfg(test)]
mod tests;
