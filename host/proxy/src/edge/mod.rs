//! Edge: listeners, TLS, limits on heads, routing between inference and control endpoints, drain.

mod accept;
mod connection;
mod connection_body;
pub(crate) mod connections;
pub(crate) mod control_routes;
mod drive;
mod framing;
mod head;
mod http2;
pub(crate) mod openapi;
pub(crate) mod own_pages;
mod pages;
mod relief;
mod respond;
mod service;
mod tokenize_route;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use self::accept::{ListenerHandle, RebindableListener};
pub use self::pages::{LongResponse, PagesSpec, serve_pages};
use self::relief::ServerRelief;
use self::service::Service;
use crate::base::readiness::Readiness;
use crate::dispatch::split::keep_bootstraps;
use crate::edge::connections::{AddressLimit, ConnectionLimiter, ConnectionLimiterSpec, ConnectionSlot};
use crate::fleet::health::keep_watch;
use crate::limits::memory;
use crate::proxy::Proxy;
use crate::tasks;

/// Result of a server's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Connections that were still busy at the end of the drain period, and were cut.
    pub cut: usize,
}

/// Shutdown periods and connection limit of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Time from the start of draining until the listener stops accepting.
    pub delay: Duration,
    /// Time from then on in which requests in progress may finish.
    pub drain: Duration,
    /// Maximum of concurrent connections.
    pub connections: usize,
}

/// Serves a listener until `shutdown`. Then `/readyz` reports draining, the listener stops accepting, and requests in
/// progress may finish. A request that is cut after that gets an error if its response has not begun or is a stream of
/// events. Connections beyond the limit wait, and those that have been idle for longest are closed to make room.
/// `/health` and `/readyz` are always answered. `pages` are served beside the router's own; they have no fallback.
pub async fn serve(
    mut listener: RebindableListener,
    proxy: Arc<Proxy>,
    pages: Router,
    shutdown: CancellationToken,
    limits: ServeLimits,
) -> DrainOutcome {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let stop = CancellationToken::new();
    let limiter = limiter(limits.connections, &proxy, &stop);
    let background = CancellationToken::new();
    let _over = background.clone().drop_guard();
    let relief = ServerRelief {
        proxy: Arc::clone(&proxy),
        limiter: Arc::clone(&limiter),
    };
    let memory = Arc::clone(&proxy.snapshots.edge().memory);
    let watch = memory::keep_watch(memory, relief, background.clone());
    tasks::spawn(&proxy.dispatcher.background, "memory", watch);
    begin(&proxy, background);
    let service = Service {
        cold: control_routes::router(Arc::clone(&proxy), pages),
        proxy: Arc::clone(&proxy),
    };
    let accepting = async {
        loop {
            let stream = listener.next().await;
            let peer = stream.peer_addr().ok().map(|peer| peer.ip());
            let limit = AddressLimit::of_peer(&proxy.snapshots.edge(), peer);
            if let Some(slot) = limiter.admit(peer, limit).await {
                spawn_connection(&connections, stream, service.clone(), slot, cut.clone());
            }
        }
    };
    let over = async {
        shutdown.cancelled().await;
        // `/readyz` must report draining before connections are refused.
        proxy.readiness.mark_draining();
        // An error: the delay has passed.
        let _ = tokio::time::timeout(limits.delay, proxy.readiness.drain_ended()).await;
    };
    tokio::select! {
        () = over => {}
        () = accepting => {}
    }
    drop(listener);
    stop.cancel();
    drain(&connections, &proxy.readiness, limits.drain, &cut).await
}

/// Waits until no connection is left, and cuts those that are left at the end of the drain.
async fn drain(
    connections: &TaskTracker,
    readiness: &Readiness,
    limit: Duration,
    cut: &CancellationToken,
) -> DrainOutcome {
    connections.close();
    info!(connections = connections.len(), "draining");
    tokio::select! {
        biased;
        () = connections.wait() => return DrainOutcome { cut: 0 },
        () = readiness.drain_ended() => {}
        () = tokio::time::sleep(limit) => {}
    }
    let left = connections.len();
    warn!(
        connections = left,
        "the drain is over: closing the remaining connections"
    );
    // The flag comes before the wake-up, so that every woken task sees it.
    readiness.mark_cutting();
    cut.cancel();
    connections.wait().await;
    DrainOutcome { cut: left }
}

/// Spawns the task of a connection. A future is compiled where a function that is not async makes it: here, and not in
/// the crate that runs [`serve`].
fn spawn_connection(
    connections: &TaskTracker,
    stream: TcpStream,
    service: Service,
    slot: ConnectionSlot,
    cut: CancellationToken,
) {
    let connection = connection::serve(stream, service, slot, cut);
    tasks::spawn(connections, "connection", connection);
}

/// Builds the connection limiter of the clients' listener.
fn limiter(limit: usize, proxy: &Proxy, stop: &CancellationToken) -> Arc<ConnectionLimiter> {
    let metrics = &proxy.metrics.edge;
    let shown = i64::try_from(limit).unwrap_or(i64::MAX);
    metrics.slots.limit.set(shown);
    ConnectionLimiter::new(ConnectionLimiterSpec {
        limit,
        key: "server.max-connections",
        taken: metrics.slots.open.clone(),
        edge: metrics.clone(),
        memory: Arc::clone(&proxy.snapshots.edge().memory),
        stop: stop.clone(),
    })
}

/// Starts the background tasks.
fn begin(proxy: &Arc<Proxy>, background: CancellationToken) {
    let active_pools = {
        let proxy = Arc::clone(proxy);
        move || proxy.snapshots.load().pools.to_vec()
    };
    let tracker = proxy.dispatcher.background.clone();
    let bootstraps = keep_bootstraps(active_pools, tracker.clone(), background.clone());
    tasks::spawn(&tracker, "bootstraps", bootstraps);
    let fleet = Arc::clone(&proxy.snapshots);
    let watch = keep_watch(fleet, tracker.clone(), background);
    tasks::spawn(&tracker, "watch", watch);
    if let Err(error) = proxy.dispatcher.start_shadows() {
        let error = &error as &dyn std::error::Error;
        warn!(
            error,
            "failed to start the thread of shadows: no shadow is called"
        );
    }
    if let Err(error) = proxy.dispatcher.sources.events.start() {
        let error = &error as &dyn std::error::Error;
        warn!(
            error,
            "failed to start the thread of events: policies receive none"
        );
    }
}
