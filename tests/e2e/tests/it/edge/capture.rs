//! A worker that shows what reaches it.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Server that answers every request with `{}` and keeps its head and body.
pub(super) struct Capture {
    pub(super) url: String,
    received: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Capture {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&received);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&kept)));
            }
        });
        Self {
            url,
            received,
            _serving: serving,
        }
    }

    /// Returns a pool of this worker alone.
    pub(super) fn toml(&self) -> String {
        format!(
            "[pools.chat]\ntokenize = \"off\"\n[[pools.chat.workers]]\nname = \"w0\"\nurl = \"{}\"\nkv-events = \"off\"\n",
            self.url
        )
    }

    /// Returns the received requests, heads in lower case.
    pub(super) fn received(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .filter(|request| request.starts_with("post"))
            .cloned()
            .collect()
    }
}

async fn serve(mut stream: TcpStream, kept: Arc<Mutex<Vec<String>>>) {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.split("\r\ncontent-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        kept.lock().unwrap().push(text.clone());
        bytes.clear();
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
