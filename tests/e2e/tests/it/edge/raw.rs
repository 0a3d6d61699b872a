//! Raw client: sends arbitrary bytes.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection to a router.
pub(super) struct Raw<S = TcpStream> {
    stream: S,
    received: Vec<u8>,
}

/// An answer with a length, or with none and no body.
#[derive(Debug)]
pub(super) struct RawAnswer {
    pub(super) status: u16,
    /// Head in lower case, with a line's end before each line.
    pub(super) head: String,
    pub(super) body: String,
}

impl Raw {
    /// Connects to `http://host:port`.
    pub(super) async fn connect(base: &str) -> Result<Self> {
        let address = base.split_once("://").context("a URL")?.1;
        Ok(Self::over(TcpStream::connect(address).await?))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(super) fn over(stream: S) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        Ok(self.stream.flush().await?)
    }

    pub(super) async fn answer(&mut self) -> Result<RawAnswer> {
        let end = loop {
            if let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("closed after {:?}", String::from_utf8_lossy(&self.received));
            }
        };
        let head = String::from_utf8_lossy(&self.received[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("a status")?.parse()?;
        let length = head.split("\r\ncontent-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let whole = end + length.unwrap_or(0);
        while self.received.len() < whole {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("closed in the middle of a body");
            }
        }
        let body = String::from_utf8_lossy(&self.received[end..whole]).into_owned();
        self.received.drain(..whole);
        Ok(RawAnswer { status, head, body })
    }

    /// Returns `true` if the router closes the connection without further output.
    pub(super) async fn is_closed(&mut self) -> bool {
        // A reset means the same.
        self.received.is_empty() && self.stream.read_buf(&mut self.received).await.unwrap_or(0) == 0
    }
}

impl RawAnswer {
    /// Returns the code of an error in the OpenAI shape; empty where it has none.
    pub(super) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns a request for an answer of one piece.
pub(super) fn chat() -> String {
    let body = crate::chat("hello", false).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
