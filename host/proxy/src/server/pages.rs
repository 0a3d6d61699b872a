//! Pages on a listener of their own, for operators: few connections, and none that says nothing for long.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::debug;

use super::accept::Door;
use crate::tasks;

/// Most connections at a time; further ones wait.
const MOST: usize = 256;
/// For the head of a request, from the connection's beginning or the answer before. Who asks every minute keeps its connection.
const HEAD_WITHIN: Duration = Duration::from_secs(75);

/// Serves pages until `stop`, and what is under way then to its end.
pub async fn serve_pages(door: Door, pages: Router, stop: CancellationToken) {
    serve(door, pages, stop, HEAD_WITHIN).await;
}

async fn serve(mut door: Door, pages: Router, stop: CancellationToken, head_within: Duration) {
    let room = Arc::new(Semaphore::new(MOST));
    let connections = TaskTracker::new();
    loop {
        let next = async {
            let seat = Arc::clone(&room).acquire_owned().await;
            (seat.expect("nobody closes it"), door.next().await)
        };
        let (seat, stream) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = next => next,
        };
        let (pages, stop) = (pages.clone(), stop.clone());
        tasks::spawn(&connections, "pages", async move {
            converse(stream, pages, stop, head_within).await;
            drop(seat);
        });
    }
    drop(door);
    connections.close();
    connections.wait().await;
}

async fn converse(stream: TcpStream, pages: Router, stop: CancellationToken, head_within: Duration) {
    // What is small is not to wait for more; where that fails, it waits.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(answer(pages, request).await) }
    });
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        let error = &error as &dyn std::error::Error;
        debug!(error, "an operator's connection ended early");
    }
}

async fn answer(pages: Router, request: Request<Incoming>) -> http::Response<Body> {
    let answered = pages.oneshot(request.map(Body::new)).await;
    answered.unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    async fn pages(head_within: Duration) -> (std::net::SocketAddr, CancellationToken, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (door, _key) = Door::new(listener);
        let pages = Router::new().route("/page", axum::routing::get(|| async { "here" }));
        let stop = CancellationToken::new();
        let mut served = JoinSet::new();
        served.spawn(serve(door, pages, stop.clone(), head_within));
        (address, stop, served)
    }

    #[tokio::test]
    async fn pages_are_served_until_they_stop() {
        let (address, stop, mut served) = pages(HEAD_WITHIN).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"GET /page HTTP/1.1\r\nhost: r\r\n\r\n")
            .await
            .unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"here") {
            assert_ne!(client.read_buf(&mut heard).await.unwrap(), 0);
        }
        stop.cancel();
        served.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_says_nothing_is_closed() {
        let (address, _stop, _served) = pages(Duration::from_millis(20)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /page HTTP/1.1\r\n").await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert!(!heard.ends_with(b"here"));
    }
}
