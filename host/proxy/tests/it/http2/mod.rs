//! Tests of HTTP/2 clients: the same requests as over HTTP/1.1, and limits on hostile ones.

mod attacks;
mod raw;
mod requests;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::router;
use crate::router::Router;

/// Test timeout, reached only by a defect.
const PATIENCE: Duration = Duration::from_secs(20);
const COMPLETION: &str = r#"{"model":"m","prompt":"hi"}"#;

/// Connection with prior knowledge.
struct Client {
    sender: SendRequest<Bytes>,
    /// Task that yields the end of the connection.
    connection: JoinSet<Result<(), h2::Error>>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: RecvStream,
}

impl Client {
    async fn connect(router: SocketAddr) -> Self {
        Self::with(router, &Builder::new()).await
    }

    async fn with(router: SocketAddr, builder: &Builder) -> Self {
        let stream = TcpStream::connect(router).await.unwrap();
        let (sender, running) = builder.handshake(stream).await.unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(running);
        Self { sender, connection }
    }

    /// Opens a stream. Unless `ends`, its body is yet to be written.
    async fn open(&mut self, request: Request<()>, ends: bool) -> (ResponseFuture, SendStream<Bytes>) {
        self.sender = self.sender.clone().ready().await.unwrap();
        self.sender.send_request(request, ends).unwrap()
    }

    async fn get(&mut self, path: &str) -> Answer {
        let (answer, _) = self.open(get(path), true).await;
        answered(answer).await
    }

    async fn post(&mut self, path: &str, body: &str) -> Answer {
        let (answer, mut sender) = self.open(post(path), false).await;
        sender.send_data(Bytes::from(body.to_owned()), true).unwrap();
        answered(answer).await
    }

    /// Waits until the router has closed the connection.
    async fn closed(mut self) -> Result<(), h2::Error> {
        let ended = timeout(PATIENCE, self.connection.join_next()).await;
        ended.expect("it is closed").unwrap().unwrap()
    }
}

async fn answered(answer: ResponseFuture) -> Answer {
    let answer = timeout(PATIENCE, answer).await.expect("an answer in time");
    let (head, body) = answer.unwrap().into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body,
    }
}

impl Answer {
    /// Reads the next piece of the body, or `None` at its end.
    async fn piece(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let piece = timeout(PATIENCE, self.body.data())
            .await
            .expect("a piece in time")?;
        Some(piece.inspect(|piece| {
            self.body.flow_control().release_capacity(piece.len()).unwrap();
        }))
    }

    async fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Some(piece) = self.piece().await {
            text.extend_from_slice(&piece.unwrap());
        }
        String::from_utf8(text).unwrap()
    }
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://router{path}")).body(()).unwrap()
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("http://router{path}"))
        .header("content-type", "application/json")
        .body(())
        .unwrap()
}

/// Builds a router with HTTP/2 on its plain listener.
fn router() -> router::Builder {
    router::router().with(|builder| builder.edge.listeners.http2.prior_knowledge = true)
}

fn turned(router: &Router, reason: &str) -> f64 {
    router.metric(&format!(
        "conductor_edge_turned_away_total{{reason=\"{reason}\"}}"
    ))
}
