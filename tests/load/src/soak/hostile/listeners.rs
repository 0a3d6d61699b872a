//! Attacks on the listeners of operators and of the index: peers that send nothing, that never read, and registrations
//! that forge.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use super::field::{Field, connect, connect_unwilling, exchange, read_all, status};
use crate::loopback::Loopback;

/// More than the admin listener takes.
const SILENT: usize = 300;
const UNWILLING: usize = 40;
/// Requests that a peer sends without reading an answer.
const UNREAD: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn spawn(attacks: &mut JoinSet<()>, field: &Arc<Field>) {
    for (what, from, to) in [
        ("silent connections for operators", 106, field.admin),
        ("silent connections to the index", 107, field.indexer),
    ] {
        for number in 0..SILENT {
            attacks.spawn(silent(Arc::clone(field), what, (from, to), number % 2 == 0));
        }
    }
    for _ in 0..UNWILLING {
        attacks.spawn(unwilling(Arc::clone(field)));
    }
    attacks.spawn(forge(Arc::clone(field)));
    attacks.spawn(check_health(Arc::clone(field)));
}

/// Says nothing, or half a head.
async fn silent(field: Arc<Field>, what: &'static str, (from, to): (u8, Loopback), is_mute: bool) {
    loop {
        if let Ok(mut stream) = connect(from, to).await {
            if !is_mute {
                let _ = stream.write_all(b"GET /health HTTP/1.1\r\nho").await;
            }
            read_all(&mut stream, PATIENCE).await;
            field.saw(what, "closed");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Requests large pages and reads none of them.
async fn unwilling(field: Arc<Field>) {
    const ATTACK: &str = "connections that never read";
    let requests = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(UNREAD);
    loop {
        if let Ok(mut stream) = connect_unwilling(108, field.admin).await {
            let _ = stream.write_all(requests.as_bytes()).await;
            // A closed connection fails to take more.
            while stream.write_all(b"\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            field.saw(ATTACK, "closed");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Registrations as pages of other origins, with names that forge lines of a log or fill pages.
async fn forge(field: Arc<Field>) {
    const ATTACK: &str = "forged registrations";
    let body = |name: &str, endpoint: &str| {
        json!({ "endpoint": endpoint, "type": "vLLM", "modelname": "m", "instance_id": name, "block_size": 16, "dp_rank": 0 }).to_string()
    };
    let post = |kind: &str, more: &str, body: &str| {
        format!(
            "POST /register HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n{more}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let (json, origin) = ("application/json", "origin: http://evil.example\r\n");
    let tries = [
        post(json, origin, &body("page", "tcp://127.0.0.1:1")),
        post("text/plain", "", &body("plain", "tcp://127.0.0.1:1")),
        post(json, "", &body("line\nERROR forged", "tcp://127.0.0.1:1")),
        post(json, "", &body(&"x".repeat(8 << 20), "tcp://127.0.0.1:1")),
        post(json, "", &body("file", "ipc:///tmp/anything")),
    ];
    for number in 0.. {
        let request = tries[number % tries.len()].as_bytes();
        let answer = exchange(109, field.indexer, request, Duration::from_secs(10)).await;
        field.saw(ATTACK, status(&answer.unwrap_or_default()));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Operators and callers of the index are answered all the same.
async fn check_health(field: Arc<Field>) {
    let get = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    loop {
        for (what, to) in [
            ("/health for operators, meanwhile", field.admin),
            ("/health of the index, meanwhile", field.indexer),
        ] {
            let answer = exchange(110, to, get, Duration::from_secs(5)).await;
            field.saw(what, status(&answer.unwrap_or_default()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
