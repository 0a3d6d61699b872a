//! Edge: listeners, TLS, limits on heads, routing between inference and control endpoints, drain.

mod accept;
mod connection;
pub(crate) mod connections;
pub(crate) mod control_routes;
mod cors;
mod drive;
mod framing;
mod head;
mod http2;
mod metrics;
pub(crate) mod openapi;
pub(crate) mod own_pages;
mod pages;
mod respond;
mod service;
mod spec;
pub(crate) mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use inference_api::Peek;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use self::accept::{Door, DoorKey};
pub use self::cors::CorsSpec;
pub use self::http2::Http2Limits;
pub(crate) use self::metrics::{CloseReason, EdgeMetrics};
pub use self::pages::{PagesSpec, serve_pages};
pub(crate) use self::service::Deadline;
use self::service::Service;
pub(crate) use self::spec::Edge;
pub use self::spec::{EdgeLimits, EdgeSpec, ListenersSpec, PagesListener};
use crate::base::reply::Refusal;
use crate::dispatch::split::keep_bootstraps;
use crate::edge::connections::{ConnectionLimiter, ConnectionLimiterSpec};
use crate::fleet::health::keep_watch;
use crate::limits::memory;
use crate::proxy::Proxy;
use crate::tasks;

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Connections that were still busy when the time was up, and were cut.
    pub cut: usize,
}

/// How a server ends, and how much it takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// From the word that no more should come to the moment nobody is accepted any more.
    pub delay: Duration,
    /// How long what is under way may take from then on.
    pub drain: Duration,
    /// Most connections at a time.
    pub connections: usize,
}

/// Serves a door until `shutdown`, then says that no more should come, stops accepting and lets what is under way finish.
/// What is cut after that is told so, where nothing or a stream of events was being answered. Of more connections than may be, further ones
/// wait, and those that were idle for longest are closed to make room; `/health` and `/readyz` are answered all the same. `pages` are served beside the router's own; they have
/// no fallback.
pub async fn serve(
    mut door: Door,
    proxy: Arc<Proxy>,
    pages: Router,
    shutdown: CancellationToken,
    limits: ServeLimits,
) -> DrainOutcome {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let stop = CancellationToken::new();
    let room = room(limits.connections, &proxy, &stop);
    let background = CancellationToken::new();
    let _over = background.clone().drop_guard();
    let watch = memory::keep_watch(Arc::clone(&proxy), Arc::clone(&room), background.clone());
    tasks::spawn(&proxy.background, "memory", watch);
    begin(&proxy, background);
    let service = Service {
        cold: control_routes::router(Arc::clone(&proxy), pages),
        proxy: Arc::clone(&proxy),
    };
    let accepting = async {
        loop {
            let stream = door.next().await;
            let peer = stream.peer_addr().ok().map(|peer| peer.ip());
            let limit = proxy.snapshots.edge().connections_of(peer);
            let Some(seat) = room.admit(peer, limit).await else {
                continue;
            };
            let (service, cut) = (service.clone(), cut.clone());
            tasks::spawn(&connections, "connection", async move {
                connection::serve(stream, service, seat, cut).await;
            });
        }
    };
    let over = async {
        shutdown.cancelled().await;
        // Whoever asks shall hear of it before being refused.
        proxy.readiness.mark_draining();
        tokio::time::sleep(limits.delay).await;
    };
    tokio::select! {
        () = over => {}
        () = accepting => {}
    }
    drop(door);
    stop.cancel();
    connections.close();
    info!(connections = connections.len(), "draining");
    if tokio::time::timeout(limits.drain, connections.wait())
        .await
        .is_ok()
    {
        return DrainOutcome { cut: 0 };
    }
    let left = connections.len();
    warn!(connections = left, "cutting what did not finish in time");
    // First the word, then the wake-up: whoever wakes shall find it.
    proxy.readiness.mark_cutting();
    cut.cancel();
    connections.wait().await;
    DrainOutcome { cut: left }
}

/// ConnectionLimiter for so many clients.
fn room(limit: usize, proxy: &Proxy, stop: &CancellationToken) -> Arc<ConnectionLimiter> {
    let metrics = &proxy.metrics;
    let shown = i64::try_from(limit).unwrap_or(i64::MAX);
    metrics.client_connections_limit.set(shown);
    ConnectionLimiter::new(ConnectionLimiterSpec {
        limit,
        key: "server.max-connections",
        taken: metrics.client_connections.clone(),
        edge: metrics.edge.clone(),
        memory: Arc::clone(&proxy.snapshots.edge().memory),
        stop: stop.clone(),
    })
}

/// Whether what a body holds may be parsed.
pub(crate) fn check_depth(peek: &Peek<'_>, limits: &EdgeLimits) -> Result<(), Refusal> {
    let limit = limits.json_depth;
    if peek.is_deeper_than(limit) {
        return Err(Refusal::BodyTooDeep { limit });
    }
    Ok(())
}

/// Starts what goes on beside the requests.
fn begin(proxy: &Arc<Proxy>, background: CancellationToken) {
    let bootstraps = keep_bootstraps(Arc::clone(proxy), background.clone());
    tasks::spawn(&proxy.background, "bootstraps", bootstraps);
    let watch = keep_watch(Arc::clone(proxy), background);
    tasks::spawn(&proxy.background, "watch", watch);
    if let Err(error) = proxy.ask_shadows() {
        let error = &error as &dyn std::error::Error;
        warn!(
            error,
            "failed to start the thread of shadows: no shadow is called"
        );
    }
    if let Err(error) = proxy.events.tell() {
        let error = &error as &dyn std::error::Error;
        warn!(
            error,
            "failed to start the thread of events: policies receive none"
        );
    }
}
