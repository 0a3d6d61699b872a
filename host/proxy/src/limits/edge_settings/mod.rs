//! Settings of the edge: request limits, certificates, trusted proxies, and CORS. They are part of a configuration
//! snapshot; the edge applies them.

mod cors;
mod http2;
mod limits;
mod listeners;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use http::HeaderValue;
use ipnet::IpNet;

pub use self::cors::CorsSpec;
pub use self::http2::Http2Limits;
pub use self::limits::EdgeLimits;
pub(crate) use self::limits::ResponseLimits;
pub use self::listeners::{ListenersSpec, PagesListener};
use crate::limits::bodies::{Bodies, BodySlot, BodyTotals};
use crate::limits::memory::Memory;

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

/// Active settings of the edge.
#[derive(Debug)]
pub(crate) struct EdgeSettings {
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

impl EdgeSettings {
    /// Returns `true` if the configuration forwards the path to workers.
    pub(crate) fn forwards(&self, path: &str) -> bool {
        self.forward.iter().any(|added| **added == *path)
    }

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

    /// Returns a slot for a client's body.
    pub(crate) fn slot(&self) -> BodySlot {
        self.bodies.begin(self.limits.body_grace)
    }
}

fn pseudonym() -> HeaderValue {
    let text = format!("1.1 conductor-{:016x}", RandomState::new().hash_one(0));
    HeaderValue::try_from(text).expect("letters, digits, a space and a dash make a header value")
}
