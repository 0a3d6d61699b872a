//! Pages on a listener of their own, for operators and for callers of the index: what the clients' listener does to silent
//! and unwilling connections happens here too.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::debug;

use super::accept::Door;
use super::drive::{Ended, Ends, drive, set_options};
use super::framing::{Guard, GuardFlags};
use super::metrics::EdgeMetrics;
use super::service::Held;
use crate::connections::{Room, RoomSpec, TakenSeat};
use crate::{reply, tasks};

/// Longest head, and what hyper reads ahead of a body.
const BUFFER: usize = 128 << 10;

/// What a listener of pages takes on.
#[derive(Debug, Clone, Copy)]
pub struct PagesSpec {
    /// The key of its address, for the log.
    pub key: &'static str,
    /// Most connections at a time. Beyond them, `/health` and `/readyz` are answered and other requests wait.
    pub connections: usize,
}

/// How long its peers may take.
#[derive(Debug, Clone, Copy)]
struct PageTimes {
    /// To the end of the first head.
    head: Duration,
    /// From an answer to the end of the next head. Who asks every minute keeps its connection.
    keep_alive: Duration,
    /// To take an answer.
    write: Duration,
}

impl Default for PageTimes {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            write: Duration::from_secs(30),
        }
    }
}

/// Serves pages until `stop`, and what is under way then to its end.
pub async fn serve_pages(door: Door, pages: Router, spec: PagesSpec, stop: CancellationToken) {
    serve(door, pages, (spec, PageTimes::default()), stop).await;
}

async fn serve(
    mut door: Door,
    pages: Router,
    (spec, times): (PagesSpec, PageTimes),
    stop: CancellationToken,
) {
    let room = Room::new(RoomSpec {
        limit: spec.connections,
        key: spec.key,
        // The metrics are those of clients.
        taken: Gauge::default(),
        edge: EdgeMetrics::default(),
        stop: stop.clone(),
    });
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            let stream = door.next().await;
            let peer = stream.peer_addr().ok().map(|peer| peer.ip());
            let Some(seat) = room.admit(peer, None).await else {
                continue;
            };
            let pages = pages.clone();
            tasks::spawn(&connections, "pages", async move {
                converse(stream, pages, seat, times).await;
            });
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = accepting => {}
    }
    drop(door);
    connections.close();
    connections.wait().await;
}

async fn converse(stream: TcpStream, pages: Router, seat: TakenSeat, times: PageTimes) {
    // What is small is not to wait for more; where that fails, it waits.
    let _ = set_options(&stream, times.write);
    let heard = AtomicBool::new(false);
    let seated = &seat;
    let answer = service_fn(|request: Request<Incoming>| {
        heard.store(true, Ordering::Relaxed);
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(answer(pages, request, (seated, times)).await) }
    });
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(times.keep_alive)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Guard::new(stream, GuardFlags::default())), answer);
    let mut connection = pin!(connection);
    let never = CancellationToken::new();
    let ends = Ends {
        heard: &heard,
        head_timeout: times.head,
        seat: seated,
        cut: &never,
    };
    match drive(connection.as_mut(), |it| it.graceful_shutdown(), ends).await {
        Ended::Served(Ok(())) | Ended::Cut => {}
        Ended::Served(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            debug!(error, "a connection for pages ended early");
        }
        Ended::Turned(why) => debug!(?why, "a connection for pages is closed"),
    }
}

async fn answer(
    pages: Router,
    request: Request<Incoming>,
    (seat, times): (&TakenSeat, PageTimes),
) -> Response<Held<Body>> {
    let turn = seat.turn();
    let seated = match seat.is_seated() {
        true => Ok(()),
        false => Box::pin(seat.sit(request.uri().path())).await,
    };
    let response = match seated {
        Ok(()) => {
            let answered = pages.oneshot(request.map(Body::new)).await;
            answered.unwrap_or_else(|never| match never {})
        }
        Err(none) => reply::refuse(&none.into()).map(Body::from),
    };
    if let Some(deadline) = Instant::now().checked_add(times.write) {
        turn.must_end(deadline);
    }
    response.map(|body| Held::new(body, turn))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    const GET: &[u8] = b"GET /page HTTP/1.1\r\nhost: r\r\n\r\n";
    /// Long enough that only a mistake takes it.
    const PATIENCE: Duration = Duration::from_secs(20);

    struct Served {
        address: std::net::SocketAddr,
        stop: CancellationToken,
        tasks: JoinSet<()>,
    }

    async fn pages(connections: usize, times: PageTimes) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (door, _key) = Door::new(listener);
        let pages = Router::new()
            .route("/page", axum::routing::get(|| async { "here" }))
            .route("/health", axum::routing::get(|| async { "well" }))
            .route("/long", axum::routing::get(|| async { "x".repeat(64 << 20) }));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let spec = PagesSpec {
            key: "server.admin-listen",
            connections,
        };
        tasks.spawn(serve(door, pages, (spec, times), stop.clone()));
        Served { address, stop, tasks }
    }

    async fn hears(client: &mut TcpStream, expected: &str) {
        let mut heard = Vec::new();
        while !heard.ends_with(expected.as_bytes()) {
            let read = timeout(PATIENCE, client.read_buf(&mut heard)).await;
            assert_ne!(read.expect("an answer in time").unwrap(), 0, "closed early");
        }
    }

    #[tokio::test]
    async fn pages_are_served_until_they_stop() {
        let mut served = pages(256, PageTimes::default()).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(GET).await.unwrap();
        hears(&mut client, "here").await;
        served.stop.cancel();
        served.tasks.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_says_nothing_is_closed() {
        let times = PageTimes {
            head: Duration::from_millis(20),
            ..PageTimes::default()
        };
        let served = pages(256, times).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(b"GET /page HTTP/1.1\r\n").await.unwrap();
        let mut heard = Vec::new();
        // Closed with bytes unread, it may be a reset.
        let _ = client.read_to_end(&mut heard).await;
        assert!(!heard.ends_with(b"here"));
    }

    #[tokio::test]
    async fn silent_peers_keep_nobody_out() {
        let patient = PageTimes {
            head: Duration::from_secs(600),
            keep_alive: Duration::from_secs(600),
            ..PageTimes::default()
        };
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
            hears(&mut client, if path == "/page" { "here" } else { "well" }).await;
        }
    }

    #[tokio::test]
    async fn a_request_that_can_be_read_in_two_ways_is_refused() {
        let served = pages(4, PageTimes::default()).await;
        let mut client = TcpStream::connect(served.address).await.unwrap();
        let smuggled =
            b"GET /page HTTP/1.1\r\nhost: r\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
            0\r\n\r\nGET /page HTTP/1.1\r\nhost: r\r\n\r\n";
        client.write_all(smuggled).await.unwrap();
        let mut heard = Vec::new();
        // Closed with bytes unread, it may be a reset.
        let _ = timeout(PATIENCE, client.read_to_end(&mut heard))
            .await
            .expect("it is closed");
        assert!(!heard.ends_with(b"here"), "{}", String::from_utf8_lossy(&heard));
    }

    #[tokio::test]
    async fn peers_that_do_not_read_keep_nobody_out() {
        let times = PageTimes {
            write: Duration::from_millis(300),
            ..PageTimes::default()
        };
        let served = pages(2, times).await;
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
        hears(&mut client, "here").await;
    }
}
