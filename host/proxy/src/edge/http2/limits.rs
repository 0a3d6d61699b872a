//! Bounds of HTTP/2 connections.

use std::time::Duration;

/// What an HTTP/2 connection may hold and do. Sizes are in bytes.
///
/// A connection holds at most `window` of request bodies that nothing has read, and for each stream its headers and
/// twice `send_buffer` of its answer. Each stream beyond the first counts as a connection, so that all streams together are as
/// many as connections may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Limits {
    /// Whether it is offered on listeners with TLS.
    pub alpn: bool,
    /// Whether listeners without TLS serve clients that begin with it.
    pub prior_knowledge: bool,
    /// Streams of a connection at a time.
    pub streams: u32,
    /// Streams that a client may reset within a second of their beginning. Each answer gives one back, as does each second.
    pub resets: u32,
    /// Request bodies of a connection that were sent and are not read; one stream has half of it.
    pub window: u32,
    /// What is written ahead of what the client takes, of each stream.
    pub send_buffer: u32,
    /// A client from which nothing came for so long is asked for a sign of life.
    pub ping_interval: Duration,
    /// It must come within this time.
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
