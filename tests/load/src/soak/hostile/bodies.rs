//! Attacks on the clients' listener: bodies that are held, that dribble, that cost a tokenizer much, and requests
//! hidden in others.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use super::field::{Field, connect, exchange, read_all, status};
use super::setup::HOSTILE_KEY;

/// Bodies of 31 MiB, of which all but the end is sent.
const HELD: usize = 12;
const HELD_BYTES: usize = 31 << 20;
const PIECE: usize = 256 << 10;
/// Connections with one byte of a body each.
const DRIBBLES: usize = 300;
const SPACES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(30);
/// Request smuggled in another one, recognised by its answer.
const HIDDEN: &str = "GET /version HTTP/1.1\r\nhost: r\r\n\r\n";
const ANSWERED: &str = "{\"version\":";

/// Bodies that are held, and that dribble.
pub(super) fn spawn(attacks: &mut JoinSet<()>, field: &Arc<Field>) {
    for _ in 0..HELD {
        attacks.spawn(hold(Arc::clone(field)));
    }
    for _ in 0..DRIBBLES {
        attacks.spawn(dribble(Arc::clone(field)));
    }
}

/// Spawns prompts that cost a tokenizer much.
pub(super) fn spawn_prompts(attacks: &mut JoinSet<()>, field: &Arc<Field>) {
    for _ in 0..2 {
        attacks.spawn(spaces(Arc::clone(field)));
    }
}

/// Spawns requests hidden in others, and those whose worker lies.
pub(super) fn spawn_lies(attacks: &mut JoinSet<()>, field: &Arc<Field>) {
    attacks.spawn(smuggle(Arc::clone(field)));
    attacks.spawn(claim(Arc::clone(field)));
}

fn head(length: usize) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\nauthorization: Bearer {HOSTILE_KEY}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Sends all of a large body but its end, and keeps the connection.
async fn hold(field: Arc<Field>) {
    const ATTACK: &str = "31 MiB bodies that are held";
    let piece = vec![b' '; PIECE];
    loop {
        let Ok(mut stream) = connect(101, field.clients).await else {
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        };
        let sending = async {
            stream.write_all(head(HELD_BYTES + 1).as_bytes()).await?;
            for _ in 0..HELD_BYTES / PIECE {
                stream.write_all(&piece).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        // Once the router stops reading, nothing more is sent.
        let _ = tokio::time::timeout(PATIENCE, sending).await;
        field.saw(ATTACK, status(&read_all(&mut stream, PATIENCE).await));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Sends one byte of a body and keeps the connection.
async fn dribble(field: Arc<Field>) {
    const ATTACK: &str = "bodies of one byte";
    let bytes = head(100) + "{";
    loop {
        let outcome = match exchange(102, field.clients, bytes.as_bytes(), PATIENCE).await {
            Ok(answer) => status(&answer),
            Err(_) => "not let in".to_owned(),
        };
        field.saw(ATTACK, outcome);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Sends prompts that are one word to a tokenizer.
async fn spaces(field: Arc<Field>) {
    const ATTACK: &str = "prompts of 4 MB of spaces";
    let content = " ".repeat(SPACES);
    let body =
        json!({ "model": "hostile", "max_tokens": 1, "messages": [{ "role": "user", "content": content }] });
    let body = body.to_string();
    let request = format!(
        "{}{body}",
        head(body.len()).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")
    );
    loop {
        let answer = exchange(103, field.clients, request.as_bytes(), PATIENCE).await;
        field.saw(ATTACK, status(&answer.unwrap_or_default()));
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

/// Sends requests whose end two readers would see at two places.
async fn smuggle(field: Arc<Field>) {
    const ATTACK: &str = "requests hidden in others";
    let post = "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\n";
    let length = HIDDEN.len();
    let tries = [
        format!("{post}content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"),
        format!("{post}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n{HIDDEN}"),
        format!("{post}content-length: 0\r\ncontent-length: {length}\r\n\r\n{HIDDEN}"),
        format!("{post}content-length: +0\r\n\r\n{HIDDEN}"),
        format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{HIDDEN}"),
        format!("{post}transfer-encoding: chunked\r\n\r\n0\r\nx: y\n\r\n{HIDDEN}"),
        format!("{post}transfer-encoding: chunked\r\n\r\n0 \n\r\n{HIDDEN}"),
        format!(
            "POST /v1/chat/completions HTTP/1.0\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}"
        ),
        format!("GET /health HTTP/1.1\nhost: r\ncontent-length: 0\n\n{HIDDEN}"),
        format!("GET /health HTTP/1.1\r\nhost: r\r\n folded: x\r\n\r\n{HIDDEN}"),
    ];
    for number in 0.. {
        let request = &tries[number % tries.len()];
        let answer = exchange(104, field.clients, request.as_bytes(), Duration::from_millis(500)).await;
        let answer = answer.unwrap_or_default();
        if answer.contains(ANSWERED) {
            field.saw_smuggled();
            field.saw(ATTACK, format!("answered: number {}", number % tries.len()));
        }
        field.saw(ATTACK, status(&answer));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sends requests whose worker reports 2^64-1 tokens: the client's limits must not be exhausted.
async fn claim(field: Arc<Field>) {
    const ATTACK: &str = "usage of 2^64-1";
    let body =
        json!({ "model": "hostile", "max_tokens": 1, "messages": [{ "role": "user", "content": "a" }] })
            .to_string();
    let request = format!(
        "{}{body}",
        head(body.len()).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")
    );
    loop {
        let answer = exchange(105, field.clients, request.as_bytes(), PATIENCE).await;
        field.saw(ATTACK, status(&answer.unwrap_or_default()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
