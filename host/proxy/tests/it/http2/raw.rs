//! HTTP/2 client that writes arbitrary frames.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GO_AWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// Received frame.
#[derive(Debug)]
pub(super) struct RawFrame {
    pub(super) kind: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl RawFrame {
    /// Returns the error code of RST_STREAM or GOAWAY.
    pub(super) fn code(&self) -> u32 {
        let at = if self.kind == GO_AWAY { 4 } else { 0 };
        let code = self.payload[at..at + 4].try_into().unwrap();
        u32::from_be_bytes(code)
    }
}

/// Connection after the preface and empty settings.
pub(super) struct RawClient(TcpStream);

impl RawClient {
    pub(super) async fn connect(router: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(router).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream.write_all(preface).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self(stream)
    }

    /// Writes frames. Returns `false` if the router has closed the connection.
    pub(super) async fn send(&mut self, frames: &[u8]) -> bool {
        self.0.write_all(frames).await.is_ok()
    }

    /// Reads the next frame, or `None` once the connection is closed.
    pub(super) async fn frame(&mut self) -> Option<RawFrame> {
        let mut head = [0; 9];
        let read = timeout(PATIENCE, self.0.read_exact(&mut head)).await;
        read.expect("a frame, or the end").ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(RawFrame {
            kind: head[3],
            stream: u32::from_be_bytes(head[5..9].try_into().unwrap()),
            payload,
        })
    }

    /// Reads up to the next frame of this kind. Returns `None` if the connection is closed before.
    pub(super) async fn until(&mut self, kind: u8) -> Option<RawFrame> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes `:method`, `:scheme`, `:path`, `:authority` and further headers, without indexing (RFC 7541).
pub(super) fn block(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "router"),
    ];
    for (name, value) in pseudo.iter().chain(headers) {
        block.push(0);
        for text in [name, value] {
            block.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|length| *length < 127)
                    .unwrap(),
            );
            block.extend(text.as_bytes());
        }
    }
    block
}

/// Encodes a whole request without a body.
pub(super) fn request(stream: u32, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let flags = END_STREAM | END_HEADERS;
    frame(HEADERS, flags, stream, &block("GET", path, headers))
}

/// Encodes the head of a request with a body.
pub(super) fn head(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block("POST", path, &[]))
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    // CANCEL.
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}
