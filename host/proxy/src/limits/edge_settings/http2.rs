//! Limits of HTTP/2 connections.

use std::time::Duration;

/// Limits of an HTTP/2 connection. Sizes are in bytes.
///
/// A connection holds at most `window` bytes of unread request bodies. Each stream holds its headers and twice
/// `send_buffer` of its response. Each stream beyond the first counts as a connection, so the limit on connections
/// bounds all streams together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    /// Set if HTTP/2 is offered on listeners with TLS.
    pub alpn: bool,
    /// Set if listeners without TLS accept clients that begin with HTTP/2.
    pub prior_knowledge: bool,
    /// Maximum of concurrent streams of a connection.
    pub streams: u32,
    /// Budget of streams that a client resets within a second of their beginning. Each response and each second gives
    /// one back.
    pub resets: u32,
    /// Flow-control window: unread request bodies of a connection. One stream has half of it.
    pub window: u32,
    /// Send buffer of each stream: bytes written ahead of the client.
    pub send_buffer: u32,
    /// Time without input after which the client gets a PING.
    pub ping_interval: Duration,
    /// Timeout of the PING's reply.
    pub ping_timeout: Duration,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            alpn: true,
            prior_knowledge: false,
            streams: 100,
            resets: 100,
            window: 512 << 10,
            send_buffer: 64 << 10,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
        }
    }
}
