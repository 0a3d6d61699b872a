//! Accepting connections, telling hot paths from cold ones, and draining at the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use inference_api::Endpoint;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::{Instrument, debug, info, warn};

use crate::body::Body;
use crate::proxy::Proxy;
use crate::{cold, pipeline, reply, tasks};

/// How long a connection may take for the next request's head, waiting for it included.
const HEAD_WITHIN: Duration = Duration::from_secs(75);
/// Pause after an accept that failed for want of file descriptors or the like.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A connection on which nothing has moved for so long is asked whether the client is still there.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Pause between two such questions.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Connections that were still busy when the time was up, and were cut.
    pub cut: usize,
}

/// Serves a listener until `shutdown`, then stops accepting and lets what is under way finish, for at most
/// `drain`. At `max_connections` no more are accepted until one closes; they wait in the listener's backlog.
pub async fn serve(
    listener: TcpListener,
    proxy: Arc<Proxy>,
    shutdown: CancellationToken,
    drain: Duration,
    max_connections: usize,
) -> DrainOutcome {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let room = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let cold = cold::router(Arc::clone(&proxy));
    let accepting = async {
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            let stream = accept(&listener).await;
            let service = Service {
                proxy: Arc::clone(&proxy),
                cold: cold.clone(),
            };
            let (stop, cut) = (shutdown.child_token(), cut.child_token());
            tasks::spawn(&connections, "connection", async move {
                serve_connection(stream, service, stop, cut).await;
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = accepting => {}
    }
    // Whoever asks shall hear of it before being refused.
    proxy.readiness.mark_draining();
    drop(listener);
    connections.close();
    info!(connections = connections.len(), "draining");
    if tokio::time::timeout(drain, connections.wait()).await.is_ok() {
        return DrainOutcome { cut: 0 };
    }
    let left = connections.len();
    warn!(connections = left, "cutting what did not finish in time");
    cut.cancel();
    connections.wait().await;
    DrainOutcome { cut: left }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to accept a connection"
                );
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: Service,
    stop: CancellationToken,
    cut: CancellationToken,
) {
    let patience = service.proxy.snapshots.load().limits.idle_timeout;
    if let Err(error) = set_options(&stream, patience) {
        debug!(
            error = &error as &dyn std::error::Error,
            "failed to set a connection's options"
        );
    }
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), service_fn(|request| service.call(request)));
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                served = connection => served,
                () = cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = served {
        debug!(
            error = &error as &dyn std::error::Error,
            "a connection ended early"
        );
    }
}

/// Has the system end a connection on which the client takes nothing for `patience`, be it gone or just not
/// reading. Nobody polls an answer that cannot be written, so no timer of its own could tell, and the worker
/// would stay booked.
fn set_options(stream: &TcpStream, patience: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY);
    socket.set_tcp_keepalive(&probes)?;
    // Not known elsewhere, where the retransmission limit has to do.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(patience))?;
    #[cfg(not(target_os = "linux"))]
    let _ = patience;
    Ok(())
}

struct Service {
    proxy: Arc<Proxy>,
    cold: Router,
}

impl Service {
    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path();
        Ok(match Endpoint::of_path(path) {
            Some(endpoint) if request.method() == Method::POST => {
                let span = tracing::debug_span!("request", path = endpoint.path());
                pipeline::infer(&self.proxy, endpoint, request)
                    .instrument(span)
                    .await
            }
            Some(_) => reply::refuse(&cold::wrong_method(path, "POST")).map(Body::from),
            None => {
                let response = self.cold.clone().oneshot(cold::request(request)).await?;
                response.map(Body::Cold)
            }
        })
    }
}
