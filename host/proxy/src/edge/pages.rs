//! HTTP server of the listeners for operators and for callers of the index. TLS, limits and timeouts are the same code
//! as for clients; only the handlers differ.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::accept::RebindableListener;
use super::respond::{Respond, Terms};
use super::{connection, head};
use crate::base::deadline::ResponseDeadline;
use crate::base::reply::{self, Refusal};
use crate::edge::connections::{AddressLimit, ConnectionLimiter, ConnectionLimiterSpec, ConnectionSlot};
use crate::limits::edge_settings::PagesListener;
use crate::observe::edge_metrics::EdgeMetrics;
use crate::proxy::Proxy;
use crate::request::realtime::OpenedTunnel;
use crate::tasks;

/// Write timeout of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Response extension: the response is long on purpose, so that the write timeout does not hold for it.
#[derive(Debug, Clone, Copy)]
pub struct LongResponse;

/// Parameters of a listener of pages.
#[derive(Debug, Clone, Copy)]
pub struct PagesSpec {
    /// Listener that serves the pages.
    pub listener: PagesListener,
    /// Configuration key of its address, for the log.
    pub key: &'static str,
    /// Maximum of connections. Beyond it, `/health` and `/readyz` are answered and other requests wait.
    pub connections: usize,
}

/// Request handler of such a listener.
#[derive(Clone)]
struct Pages {
    router: Router,
    /// Returns the settings of a new connection: those of clients, with the listener's own certificate.
    terms: Arc<dyn Fn() -> Terms + Send + Sync>,
    metrics: EdgeMetrics,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// Serves pages until `stop`, then finishes the requests in progress. Limits and certificates come from the proxy's
/// configuration.
pub async fn serve_pages(
    listener: RebindableListener,
    router: Router,
    spec: PagesSpec,
    proxy: &Proxy,
    stop: CancellationToken,
) {
    let snapshots = Arc::clone(&proxy.snapshots);
    let terms = move || {
        let edge = snapshots.edge();
        Terms {
            limits: edge.limits,
            http2: edge.listeners.http2,
            tls: edge.listeners.of(spec.listener),
            patience: WRITE_TIMEOUT,
        }
    };
    let pages = Pages {
        router,
        terms: Arc::new(terms),
        metrics: proxy.metrics.edge.pages(spec.listener.as_str()),
    };
    serve(listener, pages, spec, stop).await;
}

async fn serve(mut listener: RebindableListener, pages: Pages, spec: PagesSpec, stop: CancellationToken) {
    let limiter = ConnectionLimiter::new(ConnectionLimiterSpec {
        limit: spec.connections,
        key: spec.key,
        // The gauge is for the clients' listener only.
        taken: Gauge::default(),
        edge: pages.metrics.clone(),
        // Operators are admitted however short memory is.
        memory: Arc::default(),
        stop: stop.clone(),
    });
    let connections = TaskTracker::new();
    let never = CancellationToken::new();
    let accepting = async {
        loop {
            let stream = listener.next().await;
            let peer = stream.peer_addr().ok().map(|peer| peer.ip());
            let Some(slot) = limiter.admit(peer, AddressLimit::Part).await else {
                continue;
            };
            spawn_connection(&connections, stream, pages.clone(), slot, never.clone());
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = accepting => {}
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Spawns the task of a connection: a plain function, so that it is compiled in this crate.
fn spawn_connection(
    connections: &TaskTracker,
    stream: TcpStream,
    pages: Pages,
    slot: ConnectionSlot,
    cut: CancellationToken,
) {
    tasks::spawn(connections, "pages", connection::serve(stream, pages, slot, cut));
}

impl Respond for Pages {
    type Body = Body;

    fn terms(&self) -> Terms {
        (self.terms)()
    }

    fn metrics(&self) -> &EdgeMetrics {
        &self.metrics
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        _: Option<IpAddr>,
        _: &OpenedTunnel,
    ) -> Response<Body> {
        let terms = self.terms();
        let mut response = match head::check(&request, &terms.limits, None) {
            Ok(()) => {
                let Ok(response) = self.router.clone().oneshot(request.map(Body::new)).await;
                response
            }
            Err(refusal) => {
                self.metrics.refused(&refusal);
                self.refuse(&request, &refusal)
            }
        };
        let is_long = response.extensions_mut().remove::<LongResponse>().is_some();
        let deadline = Instant::now().checked_add(terms.patience);
        if let Some(deadline) = deadline.filter(|_| !is_long) {
            response.extensions_mut().insert(ResponseDeadline(deadline));
        }
        response
    }

    fn refuse(&self, _request: &Request<Incoming>, refusal: &Refusal) -> Response<Body> {
        reply::refuse(refusal).map(Body::from)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;
    use crate::limits::edge_settings::{EdgeLimits, Http2Limits};

    const GET: &[u8] = b"GET /page HTTP/1.1\r\nhost: r\r\n\r\n";
    /// Test timeout, reached only by a defect.
    const PATIENCE: Duration = Duration::from_secs(20);

    struct Served {
        address: std::net::SocketAddr,
        stop: CancellationToken,
        tasks: JoinSet<()>,
    }

    fn terms(head: Duration, keep_alive: Duration) -> Terms {
        Terms {
            limits: EdgeLimits {
                head_timeout: head,
                keep_alive_timeout: keep_alive,
                ..EdgeLimits::default()
            },
            http2: Http2Limits::default(),
            tls: None,
            patience: WRITE_TIMEOUT,
        }
    }

    fn plain() -> Terms {
        terms(Duration::from_secs(10), Duration::from_secs(75))
    }

    async fn pages(connections: usize, terms: Terms) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (listener, _handle) = RebindableListener::new(listener);
        let router = Router::new()
            .route("/page", axum::routing::get(|| async { "here" }))
            .route("/health", axum::routing::get(|| async { "well" }))
            .route("/long", axum::routing::get(|| async { "x".repeat(64 << 20) }));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let spec = PagesSpec {
            listener: PagesListener::Admin,
            key: "server.admin-listen",
            connections,
        };
        let pages = Pages {
            router,
            terms: Arc::new(move || terms.clone()),
            metrics: EdgeMetrics::default(),
        };
        tasks.spawn(serve(listener, pages, spec, stop.clone()));
        Served { address, stop, tasks }
    }

    async fn receives(client: &mut TcpStream, expected: &str) {
        let mut received = Vec::new();
        while !received.ends_with(expected.as_bytes()) {
            let read = timeout(PATIENCE, client.read_buf(&mut received)).await;
            assert_ne!(read.expect("an answer in time").unwrap(), 0, "closed early");
        }
    }

    #[tokio::test]
    async fn pages_are_served_until_they_stop() {
        let mut served = pages(256, plain()).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(GET).await.unwrap();
        receives(&mut client, "here").await;
        served.stop.cancel();
        served.tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_silent_client_is_closed() {
        let terms = terms(Duration::from_millis(20), Duration::from_secs(75));
        let served = pages(256, terms).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(b"GET /page HTTP/1.1\r\n").await.unwrap();
        let mut received = Vec::new();
        // The connection may be reset if it is closed with unread bytes.
        let _ = client.read_to_end(&mut received).await;
        assert!(!received.ends_with(b"here"));
    }

    #[tokio::test]
    async fn silent_peers_keep_no_one_out() {
        let patient = terms(Duration::from_secs(600), Duration::from_secs(600));
        let served = pages(4, patient).await;
        let mut silent = Vec::new();
        for number in 0..200 {
            let mut client = TcpStream::connect(served.address).await.unwrap();
            if number % 2 == 0 {
                client.write_all(b"GET /page HTTP/1.1\r\nho").await.unwrap();
            }
            silent.push(client);
        }
        for path in ["/health", "/page"] {
            let mut client = TcpStream::connect(served.address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: r\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            receives(&mut client, if path == "/page" { "here" } else { "well" }).await;
        }
    }

    #[tokio::test]
    async fn a_request_that_can_be_read_in_two_ways_is_refused() {
        let served = pages(4, plain()).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        let smuggled =
            b"GET /page HTTP/1.1\r\nhost: r\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
            0\r\n\r\nGET /page HTTP/1.1\r\nhost: r\r\n\r\n";
        client.write_all(smuggled).await.unwrap();
        let mut received = Vec::new();
        // The connection may be reset if it is closed with unread bytes.
        let _ = timeout(PATIENCE, client.read_to_end(&mut received))
            .await
            .expect("it is closed");
        assert!(
            !received.ends_with(b"here"),
            "{}",
            String::from_utf8_lossy(&received)
        );
    }

    #[tokio::test]
    async fn peers_that_do_not_read_keep_no_one_out() {
        let terms = Terms {
            patience: Duration::from_millis(300),
            ..plain()
        };
        let served = pages(2, terms).await;
        let mut unwilling = Vec::new();
        for _ in 0..4 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4 << 10).unwrap();
            let mut client = socket.connect(served.address).await.unwrap();
            client
                .write_all(b"GET /long HTTP/1.1\r\nhost: r\r\n\r\n")
                .await
                .unwrap();
            unwilling.push(client);
        }
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(GET).await.unwrap();
        receives(&mut client, "here").await;
    }
}
