//! `[server]` and the connections of pools, as specs for the edge.

use std::sync::Arc;

use conductor_config::{Config, CorsConfig, Http2Config, MemoryLimitConfig, PoolConfig, TotalsConfig};
use http::HeaderValue;
use process_resources::control_group_limit;
use proxy::{
    BodyTotals, ConnectionsSpec, CorsSpec, EdgeLimits, EdgeSpec, Http2Limits, ListenersSpec, ServeLimits,
};

use external_resources::Certificates;

/// Returns the spec of the edge. `certificates` were read for this configuration, and `max_connections` is the limit of
/// the start, which stays until a restart.
pub(crate) fn edge_spec(config: &Config, certificates: &Certificates, max_connections: u32) -> EdgeSpec {
    let limits = &config.server.limits;
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    EdgeSpec {
        limits: EdgeLimits {
            header_bytes: bytes(limits.headers),
            headers: limits.header_count as usize,
            url_bytes: bytes(limits.url),
            json_depth: limits.json_depth as usize,
            head_timeout: limits.head_timeout,
            keep_alive_timeout: limits.keep_alive_timeout,
            body_grace: limits.body_timeout,
            body_rate: limits.body_rate,
            response_ids: limits.response_ids as usize,
            response_ttl: limits.response_ttl,
        },
        bodies: body_totals(&config.server.totals, max_connections),
        per_address: config
            .server
            .totals
            .connections_per_address
            .map(|most| most as usize),
        fronts: config.server.trusted_fronts.clone().into(),
        listeners: ListenersSpec {
            http2: http2_limits(config.server.http2),
            ..certificates.of_listeners()
        },
        cors: config.server.cors.as_ref().map(|cors| Arc::new(cors_spec(cors))),
        forward: config
            .server
            .forward
            .iter()
            .map(|path| path.as_str().into())
            .collect(),
    }
}

fn http2_limits(http2: Http2Config) -> Http2Limits {
    let Http2Config {
        alpn,
        prior_knowledge,
        streams,
        resets,
        window,
        send_buffer,
        ping_interval,
        ping_timeout,
    } = http2;
    Http2Limits {
        alpn,
        prior_knowledge,
        streams,
        resets,
        window,
        send_buffer,
        ping_interval,
        ping_timeout,
    }
}

fn body_totals(totals: &TotalsConfig, max_connections: u32) -> BodyTotals {
    let default = (max_connections / 2).max(1);
    let unfinished = totals.unfinished_bodies.unwrap_or(default);
    BodyTotals {
        bytes: usize::try_from(totals.buffered_bodies).unwrap_or(usize::MAX),
        unfinished: unfinished as usize,
        memory: memory_limit(totals.memory_limit),
    }
}

/// Returns the memory limit of the process in bytes. `None` without one.
pub(super) fn memory_limit(config: MemoryLimitConfig) -> Option<u64> {
    match config {
        MemoryLimitConfig::OfGroup => control_group_limit(),
        MemoryLimitConfig::Off => None,
        MemoryLimitConfig::Bytes(bytes) => Some(bytes),
    }
}

fn cors_spec(cors: &CorsConfig) -> CorsSpec {
    let value = |text: &str| HeaderValue::try_from(text).expect("visible characters make a header value");
    let values = |texts: &Vec<String>| texts.iter().map(|text| value(text)).collect();
    CorsSpec {
        origins: cors.origins.as_ref().map(values),
        headers: value(&cors.headers.join(", ")),
        max_age: HeaderValue::from(cors.max_age.as_secs()),
    }
}

/// Returns the limits that are read at start only.
pub(crate) fn serve_limits(config: &Config) -> ServeLimits {
    ServeLimits {
        delay: config.server.drain_delay,
        drain: config.server.drain_timeout,
        connections: config.server.max_connections as usize,
    }
}

/// Returns the limits and TLS of connections to a pool's workers.
pub(super) fn connections_spec(pool: &PoolConfig, certificates: &Certificates) -> ConnectionsSpec {
    let connections = &pool.connections;
    ConnectionsSpec {
        most: connections.max.map(|most| most as usize),
        idle: connections.idle as usize,
        idle_for: connections.idle_for,
        age: connections.max_age,
        tls: certificates.of_pool(pool),
        http2: connections.http2,
    }
}
