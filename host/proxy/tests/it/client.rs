//! HTTP client with one connection per request, closed when its response is dropped.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::PATIENCE;

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    _connection: JoinSet<()>,
}

/// End of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Aborted,
}

pub(crate) async fn send(router: SocketAddr, request: Request<Bytes>) -> Answer {
    try_send(router, request).await.expect("an answer")
}

pub(crate) async fn try_send(router: SocketAddr, request: Request<Bytes>) -> Result<Answer, hyper::Error> {
    let stream = TcpStream::connect(router).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    let sent = sender.send_request(request.map(Full::new));
    let response = tokio::time::timeout(PATIENCE, sent)
        .await
        .expect("an answer in time")?;
    let (head, body) = response.into_parts();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
        _connection: tasks,
    })
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Bytes> {
    Request::post(path)
        .header("host", "router")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

pub(crate) fn get(path: &str) -> Request<Bytes> {
    Request::get(path)
        .header("host", "router")
        .body(Bytes::new())
        .unwrap()
}

/// Creates a small chat request.
pub(crate) fn chat() -> Request<Bytes> {
    post(
        "/v1/chat/completions",
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#,
    )
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Reads the next piece of the body.
    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame())
            .await
            .expect("a piece in time")?;
        Some(frame.map(|frame| frame.into_data().expect("data")))
    }

    pub(crate) async fn text(self) -> String {
        let (text, end) = self.rest().await;
        assert_eq!(end, End::Clean);
        text
    }

    /// Reads the rest of the body. Returns it and how it ended.
    pub(crate) async fn rest(mut self) -> (String, End) {
        let mut text = Vec::new();
        let end = loop {
            match self.piece().await {
                Some(Ok(piece)) => text.extend_from_slice(&piece),
                Some(Err(_)) => break End::Aborted,
                None => break End::Clean,
            }
        };
        (String::from_utf8(text).unwrap(), end)
    }
}
