//! Settings of the edge: request limits, certificates, trusted proxies, and CORS.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use ipnet::IpNet;

use super::cors::CorsSpec;
use super::http2::Http2Limits;
use crate::edge::connections::{AddressLimit, is_front};
use crate::edge::tls::ServerTls;
use crate::limits::bodies::{Bodies, BodySlot, BodyTotals};
use crate::limits::memory::Memory;
use crate::request::body_reader::Pace;
use crate::request::responses::ResponseLimits;

/// Settings that apply before a request is parsed.
#[derive(Debug, Clone, Default)]
pub struct EdgeSpec {
    /// Limits of every request and connection.
    pub limits: EdgeLimits,
    /// Limits of all request bodies together.
    pub bodies: BodyTotals,
    /// TLS and HTTP/2 settings of each listener.
    pub listeners: ListenersSpec,
    /// Maximum of connections of one address. `None`: a quarter of all, and all for the router's own machine.
    pub per_address: Option<usize>,
    /// Networks of the trusted proxies, whose forwarded addresses are used.
    pub fronts: Arc<[IpNet]>,
    /// Cross-origin settings. `None`: the router sends no CORS headers.
    pub cors: Option<Arc<CorsSpec>>,
    /// Additional paths that are forwarded to workers.
    pub forward: Arc<[Box<str>]>,
}

/// TLS settings of each listener; `None` for plain connections.
#[derive(Debug, Clone, Default)]
pub struct ListenersSpec {
    /// Listener of clients.
    pub clients: Option<Arc<ServerTls>>,
    /// Listener of operators.
    pub admin: Option<Arc<ServerTls>>,
    /// Listener of the index service.
    pub indexer: Option<Arc<ServerTls>>,
    /// HTTP/2 limits of all listeners.
    pub http2: Http2Limits,
}

/// Listener of pages: every listener but that of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesListener {
    /// Listener of operators.
    Admin,
    /// Listener of the index service.
    Indexer,
}

impl PagesListener {
    /// Returns its name in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Indexer => "indexer",
        }
    }
}

impl ListenersSpec {
    pub(super) fn of(&self, listener: PagesListener) -> Option<Arc<ServerTls>> {
        match listener {
            PagesListener::Admin => self.admin.clone(),
            PagesListener::Indexer => self.indexer.clone(),
        }
    }

    /// Returns each listener that has TLS, with its name in metrics.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &ServerTls)> {
        let all = [
            ("clients", &self.clients),
            (PagesListener::Admin.as_str(), &self.admin),
            (PagesListener::Indexer.as_str(), &self.indexer),
        ];
        all.into_iter()
            .filter_map(|(name, tls)| Some((name, tls.as_deref()?)))
    }
}

/// Active settings of the edge.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) limits: EdgeLimits,
    pub(crate) totals: BodyTotals,
    /// Memory budget of bodies, shared by all snapshots.
    pub(crate) bodies: Arc<Bodies>,
    /// Memory monitor, shared by all snapshots.
    pub(crate) memory: Arc<Memory>,
    pub(crate) listeners: ListenersSpec,
    pub(crate) per_address: Option<usize>,
    pub(crate) fronts: Arc<[IpNet]>,
    pub(crate) cors: Option<Arc<CorsSpec>>,
    pub(crate) forward: Arc<[Box<str>]>,
    /// The router's own entry in `Via` (RFC 9110, section 7.6.3), with a unique pseudonym.
    pub(crate) via: HeaderValue,
}

impl Edge {
    /// Builds the settings after a reload. The `Via` pseudonym and the budget of bodies are kept.
    pub(crate) fn next(previous: Option<&Self>, spec: EdgeSpec) -> Self {
        let EdgeSpec {
            limits,
            bodies: totals,
            listeners,
            per_address,
            fronts,
            cors,
            forward,
        } = spec;
        let bodies = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.bodies));
        let memory = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.memory));
        let via = previous.map_or_else(pseudonym, |previous| previous.via.clone());
        Self {
            limits,
            totals,
            bodies,
            memory,
            listeners,
            per_address,
            fronts,
            cors,
            forward,
            via,
        }
    }
}

impl Edge {
    /// Returns the limit on the connections of a peer.
    pub(crate) fn connections_of(&self, peer: Option<IpAddr>) -> AddressLimit {
        match peer {
            Some(peer) if is_front(&self.fronts, peer) => AddressLimit::Front,
            _ => self.address_limit(),
        }
    }

    /// Returns the limit on connections and requests of an address that is not a trusted proxy's.
    pub(crate) fn address_limit(&self) -> AddressLimit {
        self.per_address.map_or(AddressLimit::Part, AddressLimit::Of)
    }

    /// Returns a slot for a client's body.
    pub(crate) fn slot(&self) -> BodySlot {
        self.bodies.begin(self.limits.body_grace)
    }
}

fn pseudonym() -> HeaderValue {
    let text = format!("1.1 conductor-{:016x}", RandomState::new().hash_one(0));
    HeaderValue::try_from(text).expect("letters, digits, a space and a dash make a header value")
}

/// Limits of every request and connection of a client. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Maximum of a request's headers: names and values together.
    pub header_bytes: usize,
    /// Maximum number of a request's headers, at most 100.
    pub headers: usize,
    /// Maximum of path and query.
    pub url_bytes: usize,
    /// Maximum nesting of arrays and objects.
    pub json_depth: usize,
    /// Timeout from the beginning of a connection to the end of the first head, TLS included.
    pub head_timeout: Duration,
    /// Keep-alive timeout from the end of a response to the end of the next head.
    pub keep_alive_timeout: Duration,
    /// Time that any body may take.
    pub body_grace: Duration,
    /// Minimum rate: one second is added for each so many bytes; 0 disables the timeout.
    pub body_rate: u64,
    /// Maximum of response ids with a known worker; 0 keeps none.
    pub response_ids: usize,
    /// Lifetime of such an id.
    pub response_ttl: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            header_bytes: 64 << 10,
            headers: 64,
            url_bytes: 8 << 10,
            json_depth: 128,
            head_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            body_grace: Duration::from_secs(30),
            body_rate: 1 << 10,
            response_ids: 100_000,
            response_ttl: Duration::from_hours(1),
        }
    }
}

impl EdgeLimits {
    /// Returns the limits of the table of response ids.
    pub(crate) fn responses(&self) -> ResponseLimits {
        ResponseLimits {
            most: self.response_ids,
            ttl: self.response_ttl,
        }
    }

    /// Returns the pace of a client's body, whose pieces may be `idle` apart.
    pub(crate) fn pace(&self, idle: Duration) -> Pace {
        Pace {
            idle,
            grace: self.body_grace,
            rate: self.body_rate,
        }
    }
}
