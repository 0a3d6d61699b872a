//! `[pools.NAME.connections]`: connection pool of each worker.

use std::time::Duration;

use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;

/// `[pools.NAME.connections]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionsConfig {
    /// Most connections in use, one per request; `None` for no limit.
    pub max: Option<u32>,
    /// Most idle connections.
    pub idle: u32,
    /// Idle timeout.
    pub idle_for: Duration,
    /// Maximum age. Older connections are not reused, so the worker's name is resolved again.
    pub max_age: Duration,
    /// Uses HTTP/2 with workers that support it.
    pub http2: bool,
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            max: None,
            idle: 512,
            idle_for: Duration::from_secs(60),
            max_age: Duration::from_secs(600),
            http2: false,
        }
    }
}

pub(crate) fn read(section: Option<Section<'_>>) -> ConnectionsConfig {
    let default = ConnectionsConfig::default();
    let Some(mut connections) = section else {
        return default;
    };
    let small = |count: u64| u32::try_from(count).expect("within a range that ends at a u32");
    let max = connections
        .item("max")
        .and_then(|item| item.count(&(1..=1_000_000)));
    let config = ConnectionsConfig {
        max: max.map(small),
        idle: small(connections.count("idle", u64::from(default.idle), 0..=1_000_000)),
        idle_for: connections.duration("idle-for", default.idle_for, TIMEOUTS),
        max_age: connections.duration("max-age", default.max_age, TIMEOUTS),
        http2: connections
            .item("http2")
            .and_then(|item| item.flag())
            .unwrap_or(default.http2),
    };
    connections.finish();
    config
}
