//! Lying workers: impossible usages, answers with two framings, an unrequested protocol switch.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::http::{Head, MessageReader, MessageSink};

const MODELS: &str =
    r#"{"object":"list","data":[{"id":"hostile","object":"model","created":1,"owned_by":"h"}]}"#;
const ANSWER: &str = r#"{"id":"h","object":"chat.completion","created":1,"model":"hostile","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"total_tokens":18446744073709551615}}"#;

/// They serve until they are dropped.
pub(super) struct HostileWorkers {
    addresses: Vec<SocketAddr>,
    _serving: JoinSet<()>,
}

impl HostileWorkers {
    pub(super) async fn start(count: usize) -> Result<Self> {
        let (mut addresses, mut serving) = (Vec::new(), JoinSet::new());
        let answered = Arc::<AtomicUsize>::default();
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0")
                .await
                .context("failed to listen as a worker")?;
            addresses.push(
                listener
                    .local_addr()
                    .context("failed to read a worker's address")?,
            );
            serving.spawn(serve(listener, Arc::clone(&answered)));
        }
        Ok(Self {
            addresses,
            _serving: serving,
        })
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.addresses
            .iter()
            .map(|address| format!("http://{address}"))
            .collect()
    }
}

async fn serve(listener: TcpListener, answered: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let answered = Arc::clone(&answered);
            connections.spawn(async move {
                // A router that closes is right to.
                let _ = converse(stream, &answered).await;
            });
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Requested kind of answer.
#[derive(Default)]
struct ReceivedMessage(String);

impl MessageSink for ReceivedMessage {
    fn head(&mut self, head: &Head<'_>) {
        self.0 = String::from_utf8_lossy(head.start).into_owned();
    }

    fn body(&mut self, _: &[u8]) {}
}

async fn converse(mut stream: TcpStream, answered: &AtomicUsize) -> io::Result<()> {
    let (mut reader, mut message) = (MessageReader::default(), ReceivedMessage::default());
    let mut scratch = vec![0; 64 << 10];
    loop {
        let received = stream.read(&mut scratch).await?;
        if received == 0 {
            return Ok(());
        }
        let mut rest = &scratch[..received];
        while !rest.is_empty() {
            let (used, is_complete) = reader.feed(rest, &mut message).map_err(io::Error::other)?;
            rest = &rest[used..];
            if is_complete {
                let answer = answer(&message.0, answered);
                stream.write_all(answer.as_bytes()).await?;
            }
        }
    }
}

fn answer(message: &str, answered: &AtomicUsize) -> String {
    let json = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    if message.starts_with("GET /v1/models") {
        return json(MODELS);
    }
    if !message.starts_with("POST ") {
        return json("{}");
    }
    match answered.fetch_add(1, Ordering::Relaxed) % 8 {
        1 => format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{ANSWER}\r\n0\r\n\r\n",
            ANSWER.len()
        ),
        3 => {
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: anything\r\nconnection: upgrade\r\n\r\n".to_owned()
        }
        _ => json(ANSWER),
    }
}
