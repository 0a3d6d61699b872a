//! `[server.http2]`: HTTP/2 on all listeners, and its limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;

/// `[server.http2]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Config {
    /// Offered on listeners with TLS.
    pub alpn: bool,
    /// Served on listeners without TLS to clients with prior knowledge.
    pub prior_knowledge: bool,
    /// Concurrent streams per connection.
    pub streams: u32,
    /// Stream resets that a client may send at once.
    pub resets: u32,
    /// Unread request body bytes per connection.
    pub window: u32,
    /// Bytes written ahead of a slow client, per stream.
    pub send_buffer: u32,
    /// A client that is silent for this time gets a ping...
    pub ping_interval: Duration,
    /// ...and must answer within this time.
    pub ping_timeout: Duration,
}

impl Default for Http2Config {
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

/// A stream gets half of it. It has 64 KiB before the first settings arrive (RFC 9113, section 6.9.2).
const WINDOW: RangeInclusive<u64> = 128 << 10..=64 << 20;
/// A frame has 16 KiB.
const SEND_BUFFER: RangeInclusive<u64> = 16 << 10..=16 << 20;

pub(crate) fn read(section: Option<Section<'_>>) -> Http2Config {
    let default = Http2Config::default();
    let Some(mut http2) = section else {
        return default;
    };
    let within = |number: u64| u32::try_from(number).expect("within a range that ends at a u32");
    let config = Http2Config {
        alpn: flag(&mut http2, "alpn", default.alpn),
        prior_knowledge: flag(&mut http2, "prior-knowledge", default.prior_knowledge),
        streams: within(http2.count("streams", u64::from(default.streams), 1..=10_000)),
        resets: within(http2.count("resets", u64::from(default.resets), 1..=100_000)),
        window: within(http2.size("window", u64::from(default.window), WINDOW)),
        send_buffer: within(http2.size("send-buffer", u64::from(default.send_buffer), SEND_BUFFER)),
        ping_interval: http2.duration("ping-interval", default.ping_interval, TIMEOUTS),
        ping_timeout: http2.duration("ping-timeout", default.ping_timeout, TIMEOUTS),
    };
    http2.finish();
    config
}

fn flag(http2: &mut Section<'_>, key: &'static str, default: bool) -> bool {
    http2.item(key).and_then(|item| item.flag()).unwrap_or(default)
}
