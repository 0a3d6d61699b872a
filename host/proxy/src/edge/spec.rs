//! What the edge is told: the limits of a client's requests, its certificate, and which pages may ask from a browser.

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

/// Everything that is decided before a request is looked into.
#[derive(Debug, Clone, Default)]
pub struct EdgeSpec {
    /// What bounds every request and connection.
    pub limits: EdgeLimits,
    /// What all of them may take together.
    pub bodies: BodyTotals,
    /// What connections of each listener begin with.
    pub listeners: ListenersSpec,
    /// Most connections of one address; none: a quarter of all, and all for the router's own machine.
    pub per_address: Option<usize>,
    /// Who is believed what it says of a client's address.
    pub fronts: Arc<[IpNet]>,
    /// Pages of other origins that may ask; none: the router says nothing of it.
    pub cors: Option<Arc<CorsSpec>>,
    /// Paths besides the endpoints that are placed on workers too.
    pub forward: Arc<[Box<str>]>,
}

/// What connections of each listener begin with: TLS, or none where they are plain.
#[derive(Debug, Clone, Default)]
pub struct ListenersSpec {
    /// Where clients connect.
    pub clients: Option<Arc<ServerTls>>,
    /// Where operators look.
    pub admin: Option<Arc<ServerTls>>,
    /// The index as a service.
    pub indexer: Option<Arc<ServerTls>>,
    /// HTTP/2 on all of them.
    pub http2: Http2Limits,
}

/// A listener of pages: all but that of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesListener {
    /// Where operators look.
    Admin,
    /// The index as a service.
    Indexer,
}

impl PagesListener {
    /// Its name in metrics.
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

    /// Each listener that has TLS, by its name in metrics.
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

/// The same as it is in force.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) limits: EdgeLimits,
    pub(crate) totals: BodyTotals,
    /// The same ones in every snapshot.
    pub(crate) bodies: Arc<Bodies>,
    /// Likewise.
    pub(crate) memory: Arc<Memory>,
    pub(crate) listeners: ListenersSpec,
    pub(crate) per_address: Option<usize>,
    pub(crate) fronts: Arc<[IpNet]>,
    pub(crate) cors: Option<Arc<CorsSpec>>,
    pub(crate) forward: Arc<[Box<str>]>,
    /// The router's own entry in `Via` (RFC 9110, section 7.6.3), with a pseudonym that no other router has.
    pub(crate) via: HeaderValue,
}

impl Edge {
    /// The router keeps its name and the bodies it holds.
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
    /// How many connections a peer may have.
    pub(crate) fn connections_of(&self, peer: Option<IpAddr>) -> AddressLimit {
        match peer {
            Some(peer) if is_front(&self.fronts, peer) => AddressLimit::Front,
            _ => self.address_limit(),
        }
    }

    /// How many connections and requests an address may have that is no front's.
    pub(crate) fn address_limit(&self) -> AddressLimit {
        self.per_address.map_or(AddressLimit::Part, AddressLimit::Of)
    }

    /// Returns the slot of a client's body.
    pub(crate) fn slot(&self) -> BodySlot {
        self.bodies.begin(self.limits.body_grace)
    }
}

fn pseudonym() -> HeaderValue {
    let text = format!("1.1 conductor-{:016x}", RandomState::new().hash_one(0));
    HeaderValue::try_from(text).expect("letters, digits, a space and a dash make a header value")
}

/// What bounds every request and connection of a client. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Names and values of a request's headers together.
    pub header_bytes: usize,
    /// Headers of a request; at most 100 can be had.
    pub headers: usize,
    /// Path and query.
    pub url_bytes: usize,
    /// Arrays and objects within one another.
    pub json_depth: usize,
    /// From the beginning of a connection to the end of the first head, TLS included.
    pub head_timeout: Duration,
    /// From the end of an answer to the end of the next head.
    pub keep_alive_timeout: Duration,
    /// A body may take so long...
    pub body_grace: Duration,
    /// ...and one second more for each so many bytes; 0: for ever.
    pub body_rate: u64,
    /// Most ids of responses whose worker is known; 0: none.
    pub response_ids: usize,
    /// How long such an id is known.
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
    /// How much of the responses' ids is kept.
    pub(crate) fn responses(&self) -> ResponseLimits {
        ResponseLimits {
            most: self.response_ids,
            ttl: self.response_ttl,
        }
    }

    /// The pace of a client's body, whose pieces may be `idle` apart.
    pub(crate) fn pace(&self, idle: Duration) -> Pace {
        Pace {
            idle,
            grace: self.body_grace,
            rate: self.body_rate,
        }
    }
}
