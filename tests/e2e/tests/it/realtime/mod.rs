//! `/v1/realtime`: WebSockets to the worker of a model, from the handshake to the end.

pub(crate) mod unruly;

use std::cell::Cell;

use anyhow::{Result, bail};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use harness::{Client, Fleet, TestRouter, eventually, eventually_ok, route_all};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use mock_engine::{RequestFault, Times};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::{chat, fast_fleet, router_over, router_with};

/// Audio of one second of nothing: 6 bytes in base64.
const AUDIO: &str = "AAAAAAAA";

/// Open WebSocket, with the answer that opened it.
pub(crate) struct Socket<S> {
    stream: WebSocketStream<S>,
    headers: HeaderMap,
}

impl Socket<TcpStream> {
    pub(crate) async fn open(
        router: &TestRouter,
        query: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self> {
        let address = router.client.base().trim_start_matches("http://");
        let stream = TcpStream::connect(address).await?;
        Self::over(stream, address, query, headers).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(crate) async fn over(
        stream: S,
        host: &str,
        query: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self> {
        let mut request = format!("ws://{host}/v1/realtime{query}").into_client_request()?;
        for (name, value) in headers {
            let (name, value) = (HeaderName::from_static(name), HeaderValue::try_from(*value)?);
            request.headers_mut().insert(name, value);
        }
        let (stream, answer) = client_async(request, stream).await?;
        Ok(Self {
            stream,
            headers: answer.into_parts().0.headers,
        })
    }

    fn worker(&self) -> &str {
        self.headers["x-conductor-worker"].to_str().unwrap()
    }

    async fn send(&mut self, event: &Value) -> Result<()> {
        Ok(self.stream.send(Message::text(event.to_string())).await?)
    }

    pub(crate) async fn receive(&mut self) -> Result<Value> {
        match self.stream.next().await {
            Some(Ok(Message::Text(text))) => Ok(serde_json::from_str(&text)?),
            other => bail!("no event: {other:?}"),
        }
    }

    /// Sends one utterance of so many pieces. Returns the transcript.
    pub(crate) async fn transcribe(&mut self, pieces: usize) -> Result<Value> {
        self.send(&json!({ "type": "session.update", "model": "mock" }))
            .await?;
        self.send(&json!({ "type": "input_audio_buffer.commit" })).await?;
        for _ in 0..pieces {
            self.send(&json!({ "type": "input_audio_buffer.append", "audio": AUDIO }))
                .await?;
            assert_eq!(
                self.receive().await?,
                json!({ "type": "transcription.delta", "delta": "6 " })
            );
        }
        self.send(&json!({ "type": "input_audio_buffer.commit", "final": true }))
            .await?;
        self.receive().await
    }

    /// Waits for the end, however it comes.
    async fn ended(mut self) {
        while let Some(Ok(_)) = self.stream.next().await {}
    }
}

/// Returns status and code of the answer to a handshake that is refused.
fn refused<S>(opened: Result<Socket<S>>) -> (StatusCode, String) {
    let error = opened.map(|socket| socket.headers).unwrap_err();
    let answer = match error.downcast_ref() {
        Some(Error::Http(answer)) => Ok(answer),
        _ => Err(format!("{error:#}")),
    };
    let answer = answer.unwrap();
    let body = answer.body().as_deref().unwrap_or_default();
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = body["error"]["code"].as_str().unwrap_or_default();
    (answer.status(), code.to_owned())
}

async fn no_leases(router: &TestRouter) {
    eventually("every lease is given back", || async {
        router.leases("w").await.unwrap() == 0.0
    })
    .await;
}

async fn open_sockets(router: &TestRouter) -> f64 {
    router
        .metric("conductor_realtime_connections")
        .await
        .unwrap()
        .unwrap()
}

async fn ended_as(router: &TestRouter, outcome: &str) {
    counted_as(router, outcome, 1.0).await;
}

async fn counted_as(router: &TestRouter, outcome: &str, count: f64) {
    let series = format!("conductor_requests_total{{pool=\"chat\",outcome=\"{outcome}\"}}");
    eventually(outcome, || async {
        router.metric(&series).await.unwrap() == Some(count)
    })
    .await;
}

#[tokio::test]
async fn events_flow_both_ways_and_the_lease_lasts_as_long_as_the_connection() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut socket = Socket::open(&router, "?model=mock", &[("x-request-id", "rt-1")])
        .await
        .unwrap();
    assert_eq!(
        (socket.worker(), &socket.headers["x-request-id"]),
        ("w0", &HeaderValue::from_static("rt-1"))
    );
    let created = socket.receive().await.unwrap();
    assert_eq!(created["type"], "session.created");
    assert!(created["id"].as_str().unwrap().starts_with("sess-"));
    assert_eq!(router.leases("w0").await.unwrap(), 1.0);
    assert_eq!(open_sockets(&router).await, 1.0);
    let done = socket.transcribe(3).await.unwrap();
    assert_eq!(
        (&done["type"], &done["text"]),
        (&json!("transcription.done"), &json!("6 6 6 "))
    );
    assert_eq!(router.leases("w0").await.unwrap(), 1.0);
    socket.stream.close(None).await.unwrap();
    socket.ended().await;
    no_leases(&router).await;
    ended_as(&router, "complete").await;
    assert_eq!(open_sockets(&router).await, 0.0);
    let bytes = |to: &str| format!("conductor_realtime_bytes_total{{direction=\"to-{to}\"}}");
    assert!(router.metric(&bytes("worker")).await.unwrap().unwrap() > 300.0);
    assert!(router.metric(&bytes("client")).await.unwrap().unwrap() > 300.0);
}

#[tokio::test]
async fn a_large_message_passes_whole_in_both_directions() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    socket.receive().await.unwrap();
    let kind = "x".repeat(1 << 20);
    socket.send(&json!({ "type": kind })).await.unwrap();
    let error = socket.receive().await.unwrap();
    assert_eq!(error["error"], format!("Unknown event type: {kind}"));
}

#[tokio::test]
async fn the_worker_gets_the_handshake_and_none_of_the_clients_connection() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let headers = [
        ("sec-websocket-protocol", "realtime"),
        ("x-tenant", "t"),
        ("keep-alive", "5"),
    ];
    // The mock names no subprotocol, so the client refuses the answer that it gets.
    let _ = Socket::open(&router, "?model=mock&intent=a%20b", &headers).await;
    let sent = fleet.engines[0].requests("/v1/realtime");
    let header = |name: &str| sent[0].headers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!(header("connection"), Some("Upgrade"));
    assert_eq!(header("upgrade"), Some("websocket"));
    assert_eq!(header("sec-websocket-version"), Some("13"));
    assert_eq!(header("sec-websocket-protocol"), Some("realtime"));
    assert_eq!(header("x-tenant"), Some("t"));
    assert_eq!(header("keep-alive"), None);
    no_leases(&router).await;
}

#[tokio::test]
async fn a_connection_goes_to_a_worker_of_its_model() {
    let fleet = Fleet::start(2, |number, config| {
        crate::fast(number, config);
        config.model = format!("m-{number}");
    });
    let fleet = fleet.await.unwrap();
    let router = router_over(&fleet, "round-robin").await;
    for (query, worker) in [
        ("?model=m-0", "w0"),
        ("?model=m%2d1", "w1"),
        ("?a&model=m-1&b=c", "w1"),
    ] {
        for _ in 0..2 {
            let socket = Socket::open(&router, query, &[]).await.unwrap();
            assert_eq!(socket.worker(), worker, "{query}");
        }
    }
    let refused_as = async |query: &str| refused(Socket::open(&router, query, &[]).await);
    let code = |status, code: &str| (status, code.to_owned());
    let not_found = code(StatusCode::NOT_FOUND, "model_not_found");
    assert_eq!(refused_as("?model=m-2").await, not_found);
    let two = refused_as("?model=m-0&model=m-1").await;
    assert_eq!(two, code(StatusCode::BAD_REQUEST, "invalid_query"));
    no_leases(&router).await;
}

#[tokio::test]
async fn a_model_may_be_left_out_where_there_is_one() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut socket = Socket::open(&router, "", &[]).await.unwrap();
    assert_eq!(socket.receive().await.unwrap()["type"], "session.created");
}

#[tokio::test]
async fn a_client_needs_its_key_and_the_right_to_the_model() {
    let fleet = fast_fleet(1).await;
    let keys = tempfile::tempdir().unwrap();
    for name in ["one", "none"] {
        std::fs::write(keys.path().join(name), format!("sk-{name}\n")).unwrap();
    }
    let key = |name: &str| format!("key = {{ file = {:?} }}\n", keys.path().join(name));
    let clients = format!(
        "[clients.one]\n{}concurrent = 1\n[clients.none]\n{}models = [\"other\"]\n",
        key("one"),
        key("none"),
    );
    let router = router_with(&clients, &fleet, "round-robin").await;
    let open = async |key: &str| Socket::open(&router, "?model=mock", &[("authorization", key)]).await;
    let unauthorized = (StatusCode::UNAUTHORIZED, "invalid_api_key".to_owned());
    assert_eq!(
        refused(Socket::open(&router, "?model=mock", &[]).await),
        unauthorized
    );
    assert_eq!(refused(open("Bearer sk-two").await), unauthorized);
    assert_eq!(refused(open("Bearer sk-none").await).0, StatusCode::NOT_FOUND);
    let socket = open("Bearer sk-one").await.unwrap();
    let sent = fleet.engines[0].requests("/v1/realtime");
    assert!(!sent[0].headers.contains_key("authorization"));
    // The stay of the client lasts as long as the connection.
    assert_eq!(
        refused(open("Bearer sk-one").await).0,
        StatusCode::TOO_MANY_REQUESTS
    );
    drop(socket);
    eventually("the client may come again", || async {
        open("Bearer sk-one").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_request_that_requests_no_websocket_is_refused() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let send = async |client: &Client, method, headers: &[(&str, &str)], body: &'static str| {
        let sent = client.stream(method, "/v1/realtime?model=mock", headers, Bytes::from(body));
        sent.await.unwrap().whole().await.unwrap()
    };
    let plain = send(&router.client, Method::GET, &[], "").await;
    assert_eq!(plain.status, StatusCode::UPGRADE_REQUIRED);
    assert_eq!(
        (plain.header("upgrade"), plain.header("connection")),
        ("websocket", "Upgrade")
    );
    assert_eq!(plain.json().unwrap()["error"]["code"], "upgrade_required");
    let other = [("connection", "Upgrade"), ("upgrade", "h2c")];
    let other = send(&router.client, Method::GET, &other, "").await;
    assert_eq!(other.status, StatusCode::UPGRADE_REQUIRED);
    let websocket = [("connection", "Upgrade"), ("upgrade", "websocket")];
    let post = send(&router.client, Method::POST, &websocket, "{}").await;
    assert_eq!(
        (post.status, post.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, "GET")
    );
    let with_body = send(&router.client, Method::GET, &websocket, "hidden").await;
    assert_eq!(with_body.status, StatusCode::BAD_REQUEST);
    assert_eq!(with_body.json().unwrap()["error"]["code"], "upgrade_with_body");
    assert!(fleet.engines[0].requests("/v1/realtime").is_empty());
}

#[tokio::test]
async fn an_upgrade_on_another_path_is_ignored() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket")];
    let body = Bytes::from(chat("hello", false).to_string());
    let sent = router
        .client
        .stream(Method::POST, "/v1/chat/completions", &headers, body);
    let answer = sent.await.unwrap().whole().await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let sent = fleet.engines[0].requests("/v1/chat/completions");
    assert!(!sent[0].headers.contains_key("upgrade") && !sent[0].headers.contains_key("connection"));
}

#[tokio::test]
async fn the_answer_of_a_worker_that_does_not_switch_is_relayed() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let fault = RequestFault::Status {
        status: StatusCode::FORBIDDEN,
        retry_after: None,
    };
    fleet.engines[0].faults().on_requests(fault, Times::Next(1));
    assert_eq!(
        refused(Socket::open(&router, "?model=mock", &[]).await).0,
        StatusCode::FORBIDDEN
    );
    no_leases(&router).await;
    Socket::open(&router, "?model=mock", &[]).await.unwrap();
}

#[tokio::test]
async fn both_sides_end_when_either_does() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let connections = || async { router.metric("conductor_realtime_connections").await.unwrap() };
    let mut socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    socket.receive().await.unwrap();
    drop(socket);
    no_leases(&router).await;
    ended_as(&router, "client-left").await;
    let cut = RequestFault::Cut { after_tokens: 2 };
    fleet.engines[0].faults().on_requests(cut, Times::Next(1));
    let mut socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    socket.receive().await.unwrap();
    assert!(socket.transcribe(3).await.is_err());
    no_leases(&router).await;
    eventually("no socket is open", || async { connections().await == Some(0.0) }).await;
}

#[tokio::test]
async fn a_socket_on_which_nothing_moves_is_closed() {
    let fleet = fast_fleet(1).await;
    let router = router_with("idle-timeout = \"1s\"\n", &fleet, "round-robin").await;
    let socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    socket.ended().await;
    no_leases(&router).await;
    ended_as(&router, "idle-timeout").await;
}

#[tokio::test]
async fn a_socket_ends_with_its_requests_time() {
    let fleet = fast_fleet(1).await;
    let router = router_with("request-timeout = \"1s\"\n", &fleet, "round-robin").await;
    // A busy machine may take up the time before the connection is switched.
    let late = Cell::new(0.0);
    let mut socket = eventually_ok("a socket is open", || async {
        let opened = Socket::open(&router, "?model=mock", &[]).await;
        opened.inspect_err(|_| late.set(late.get() + 1.0))
    })
    .await;
    while socket.send(&json!({ "type": "x" })).await.is_ok() && socket.receive().await.is_ok() {}
    no_leases(&router).await;
    counted_as(&router, "request-timeout", late.get() + 1.0).await;
}

#[tokio::test]
async fn a_router_that_drains_lets_sockets_finish_and_then_cuts_them() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut early = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    let mut late = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    early.receive().await.unwrap();
    late.receive().await.unwrap();
    let base = router.client.base().to_owned();
    let readiness = router.readiness.clone();
    let mut stopping = JoinSet::new();
    stopping.spawn(router.stop());
    eventually("no connection is accepted any more", || async {
        TcpStream::connect(base.trim_start_matches("http://"))
            .await
            .is_err()
    })
    .await;
    assert_eq!(early.transcribe(1).await.unwrap()["text"], "6 ");
    early.stream.close(None).await.unwrap();
    early.ended().await;
    assert_eq!(late.transcribe(1).await.unwrap()["text"], "6 ");
    readiness.end_drain();
    late.ended().await;
    stopping.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_socket_outlives_the_removal_of_its_worker() {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
    socket.receive().await.unwrap();
    let other = 1 - usize::from(socket.worker() == "w1");
    let toml = format!(
        "{}{}",
        harness::worker_toml(other, &fleet.engines[other]),
        route_all("round-robin")
    );
    router.save_config(&toml).unwrap();
    router
        .admin_shows("/status", "one worker is left", |page| {
            page["pools"][0]["workers"]
                .as_array()
                .is_some_and(|workers| workers.len() == 1)
        })
        .await;
    assert_eq!(socket.transcribe(2).await.unwrap()["text"], "6 6 ");
}
