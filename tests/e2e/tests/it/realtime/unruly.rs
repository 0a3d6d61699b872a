//! Workers that do not keep to the handshake of a WebSocket.

use harness::{TestRouter, eventually, route_all};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{Socket, refused};
use crate::{chat, fast_fleet};

/// Starts a worker that answers probes, and sends these bytes for each handshake before it closes.
pub(crate) async fn raw_worker(answer: &'static str) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let is_probe = head.starts_with(b"GET /health");
            let is_request = head
                .windows(12)
                .any(|part| part == b"/v1/realtime" || part == b"/v1/chat/com");
            let ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let nothing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let response = match (is_probe, is_request) {
                (true, _) => ok,
                (false, true) => answer,
                (false, false) => nothing,
            };
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    (port, serving)
}

pub(crate) fn raw_toml(port: u16, models: &str) -> String {
    format!(
        "[[pools.chat.workers]]\nname = \"raw\"\nurl = \"http://127.0.0.1:{port}\"\nkv-events = \"off\"\nmodels = {models}\n"
    )
}

#[tokio::test]
async fn a_worker_that_dies_before_it_switches_is_replaced_by_another() {
    let fleet = fast_fleet(1).await;
    let (port, _serving) = raw_worker("").await;
    let toml = format!(
        "{}{}{}",
        raw_toml(port, "[\"mock\"]"),
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    for _ in 0..4 {
        let mut socket = Socket::open(&router, "?model=mock", &[]).await.unwrap();
        assert_eq!(socket.worker(), "w0");
        assert_eq!(socket.receive().await.unwrap()["type"], "session.created");
    }
    let attempts = "conductor_worker_attempts_total{worker=\"raw\"}";
    assert!(router.metric(attempts).await.unwrap().unwrap() >= 1.0);
    eventually("the lease of the dead is given back", || async {
        router.leases("raw").await.unwrap() == 0.0
    })
    .await;
}

#[tokio::test]
async fn a_switch_that_was_not_requested_is_never_relayed() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nsmuggled";
    let (port, _serving) = raw_worker(switch).await;
    let toml = format!("{}{}", raw_toml(port, "[\"mock\"]"), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    let answer = router
        .client
        .post("/v1/chat/completions", &chat("hi", false))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["error"]["code"], "worker_bad_answer");
    let bad = (StatusCode::BAD_GATEWAY, "worker_bad_answer".to_owned());
    eventually("the ejected worker gets requests again", || async {
        let opened = Socket::open(&router, "?model=mock", &[]).await;
        let refused = refused(opened);
        assert!(
            refused == bad || refused.0 == StatusCode::SERVICE_UNAVAILABLE,
            "{refused:?}"
        );
        refused == bad
    })
    .await;
}
