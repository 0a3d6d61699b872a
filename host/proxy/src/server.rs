//! Accepting connections, telling hot paths from cold ones, and draining at the end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
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
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::{debug, info, warn};

use crate::body::Body;
use crate::connections::Room;
use crate::pd::keep_bootstraps;
use crate::proxy::Proxy;
use crate::{cold, pipeline, reply, tasks};

/// How long a connection may take for the next request's head, waiting for it included.
const HEAD_WITHIN: Duration = Duration::from_secs(75);
/// The same for the first head of a new connection, whose client has come to ask something.
const FIRST_HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long streams that are cut may take to say so.
const LAST_WORDS: Duration = Duration::from_millis(100);
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
/// `drain`. Streams of events that are cut then end with an error event. At `max_connections` no more are
/// accepted until one closes; they wait in the listener's backlog. `pages` are served beside the router's own; they have
/// no fallback.
pub async fn serve(
    listener: TcpListener,
    proxy: Arc<Proxy>,
    pages: Router,
    shutdown: CancellationToken,
    drain: Duration,
    max_connections: usize,
) -> DrainOutcome {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let room = Room::new(max_connections, &proxy.metrics);
    let background = CancellationToken::new();
    let _over = background.clone().drop_guard();
    let bootstraps = keep_bootstraps(Arc::clone(&proxy), background);
    tasks::spawn(&proxy.background, "bootstraps", bootstraps);
    if let Err(error) = proxy.ask_shadows() {
        let error = &error as &dyn std::error::Error;
        warn!(
            error,
            "failed to start the thread that asks shadows: none is asked"
        );
    }
    if let Err(error) = proxy.events.tell() {
        let error = &error as &dyn std::error::Error;
        warn!(
            error,
            "failed to start the thread that tells policies of events: none is told any"
        );
    }
    let cold = cold::router(Arc::clone(&proxy), pages);
    let accepting = async {
        loop {
            let seat = room.seat().await;
            let stream = accept(&listener).await;
            let seat = seat.take();
            let service = Service {
                proxy: Arc::clone(&proxy),
                cold: cold.clone(),
            };
            let (stop, cut) = (shutdown.child_token(), cut.child_token());
            tasks::spawn(&connections, "connection", async move {
                serve_connection(stream, service, stop, cut).await;
                drop(seat);
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
    // First the word, then the wake-up: whoever wakes shall find it.
    proxy.readiness.mark_cutting();
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
    let heard = AtomicBool::new(false);
    let answer = service_fn(|request| {
        heard.store(true, Ordering::Relaxed);
        service.call(request)
    });
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    let mut unheard = pin!(unheard(&heard, FIRST_HEAD_WITHIN));
    let served = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = unheard.as_mut() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                served = connection.as_mut() => served,
                () = unheard => return,
                () = cut.cancelled() => {
                    let _ = tokio::time::timeout(LAST_WORDS, connection).await;
                    return;
                }
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

/// Ends when nothing was heard for `limit`, and never once something was.
async fn unheard(heard: &AtomicBool, limit: Duration) {
    let mut timer = pin!(tokio::time::sleep(limit));
    poll_fn(|cx| {
        if heard.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        timer.as_mut().poll(cx)
    })
    .await;
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
                pipeline::infer(&self.proxy, endpoint, request).await
            }
            Some(_) => reply::refuse(&cold::wrong_method(path, "POST")).map(Body::from),
            None => {
                let response = self.cold.clone().oneshot(cold::request(request)).await?;
                response.map(Body::Cold)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn only_a_connection_that_has_said_nothing_is_given_up() {
        let heard = AtomicBool::new(false);
        unheard(&heard, Duration::from_millis(1)).await;
        heard.store(true, Ordering::Relaxed);
        assert_eq!(unheard(&heard, Duration::ZERO).now_or_never(), None);
    }
}
