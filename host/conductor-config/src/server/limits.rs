//! Request limits: keys of `[server]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;

/// Limits of heads, bodies and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Total length of a request's header names and values, in bytes.
    pub headers: u64,
    /// Number of headers of a request.
    pub header_count: u32,
    /// Path and query, in bytes.
    pub url: u64,
    /// Nesting depth of arrays and objects.
    pub json_depth: u32,
    /// Timeout of the first head of a connection, including TLS.
    pub head_timeout: Duration,
    /// Timeout from an answer to the end of the next head.
    pub keep_alive_timeout: Duration,
    /// Timeout of a body...
    pub body_timeout: Duration,
    /// ...plus a second per this many bytes; 0 for no timeout.
    pub body_rate: u64,
    /// Most response ids with a known worker; 0 for none.
    pub response_ids: u32,
    /// Lifetime of such an id.
    pub response_ttl: Duration,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            headers: 64 << 10,
            header_count: 64,
            url: 8 << 10,
            json_depth: 128,
            head_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            body_rate: 1 << 10,
            response_ids: 100_000,
            response_ttl: Duration::from_secs(3_600),
        }
    }
}

/// The HTTP library supports at most a hundred headers.
const HEADERS: RangeInclusive<u64> = 8..=100;
/// The HTTP library refuses longer URLs.
const URL: RangeInclusive<u64> = 64..=60 << 10;

pub(crate) fn read(server: &mut Section<'_>) -> LimitsConfig {
    let default = LimitsConfig::default();
    let mut count = |key, default: u32, range| {
        let count = server.count(key, u64::from(default), range);
        u32::try_from(count).expect("within a range that ends at a u32")
    };
    let header_count = count("header-count", default.header_count, HEADERS);
    let json_depth = count("json-depth", default.json_depth, 8..=100_000);
    let response_ids = count("response-ids", default.response_ids, 0..=10_000_000);
    LimitsConfig {
        headers: server.size("header-limit", default.headers, 1 << 10..=1 << 20),
        header_count,
        url: server.size("url-limit", default.url, URL),
        json_depth,
        head_timeout: server.duration("head-timeout", default.head_timeout, TIMEOUTS),
        keep_alive_timeout: server.duration("keep-alive-timeout", default.keep_alive_timeout, TIMEOUTS),
        body_timeout: server.duration("body-timeout", default.body_timeout, TIMEOUTS),
        body_rate: server.size("body-rate", default.body_rate, 0..=1 << 30),
        response_ids,
        response_ttl: server.duration("response-ttl", default.response_ttl, TIMEOUTS),
    }
}
