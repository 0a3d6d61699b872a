//! Answers of a worker: plain values, which `judge` checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kv_feed::FeedProbe;
use routing::Dialect;

/// All answers of one worker. Only `reached` has a value if the worker could not be reached.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Health page.
    pub(crate) reached: Option<Result<Reached, Unreached>>,
    pub(crate) models: Option<Page<Vec<ListedModel>>>,
    /// Page `/version`.
    pub(crate) version: Option<Page<String>>,
    /// The tokens of the probe text; by the worker and by the router.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) events: Option<Events>,
    pub(crate) bootstrap: Option<Page<Bootstrap>>,
    /// Role in SGLang's `/server_info`: `prefill`, `decode` or `null`.
    pub(crate) disaggregation: Option<String>,
    /// Dialect that a prefill worker shows, if the router detects it. For a named `sglang`, that of `/server_info`
    /// alone.
    pub(crate) shown: Option<Page<ShownDialect>>,
}

/// Dialect that a worker shows on its pages.
#[derive(Debug)]
pub(crate) struct ShownDialect {
    pub(crate) dialect: Dialect,
    /// Page that shows it.
    pub(crate) evidence: String,
    /// Address of the bootstrap server, with the port that the engine names.
    pub(crate) bootstrap: Option<String>,
}

/// Reason why a worker gave no answer.
#[derive(Debug)]
pub(crate) struct Unreached {
    pub(crate) why: String,
    pub(crate) cause: UnreachedCause,
}

/// Part of a connection that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UnreachedCause {
    /// Anything but TLS.
    Connection,
    /// The TLS handshake failed.
    Tls,
    /// The TLS handshake failed because the worker's certificate is that of an authority.
    AuthorityCertificate,
}

/// An answer of the health page.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    pub(crate) status: u16,
    pub(crate) took: Duration,
    /// Clock difference in seconds (positive: ahead); none without a `Date`.
    pub(crate) skew: Option<f64>,
}

/// Result of a query for a page.
#[derive(Debug)]
pub(crate) enum Page<T> {
    /// The page was read.
    Read(T),
    /// The worker has no such page.
    Absent,
    /// The worker refused the key, or its absence, with this status.
    Unauthorized(u16),
    /// The query failed, or the page has another form.
    Failed(String),
}

/// A model that a worker lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedModel {
    pub(crate) id: String,
    /// The model that it is an adapter of.
    pub(crate) parent: Option<String>,
}

/// The probe text as tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) of_worker: Page<Vec<u32>>,
    /// Tokens of the router's own tokenizer, if it has one for the model.
    pub(crate) of_router: Option<Result<Vec<u32>, String>>,
    /// The model that was named.
    pub(crate) model: String,
}

/// KV-event sources of a worker.
#[derive(Debug)]
pub(crate) enum Events {
    /// The configuration disables them.
    Off,
    /// Endpoints, found or written down, each probed.
    Endpoints(Vec<EventEndpoint>),
    /// The worker publishes none, or has no page with sources.
    None,
    /// The query failed.
    Failed(String),
}

/// One publisher.
#[derive(Debug)]
pub(crate) struct EventEndpoint {
    pub(crate) endpoint: String,
    pub(crate) replay: Option<String>,
    pub(crate) probe: EndpointProbe,
}

/// Result of the connection.
#[derive(Debug)]
pub(crate) enum EndpointProbe {
    /// The connection was tried.
    Tried(FeedProbe),
    /// No socket could be opened.
    Failed(String),
    /// The router binds the endpoint and the engine connects: only a running router can check it.
    Bound,
}

/// Answer of a bootstrap server.
#[derive(Debug)]
pub(crate) enum Bootstrap {
    /// The engine ids by rank (mooncake).
    Engines(BTreeMap<u16, Arc<str>>),
    /// The engine answers (SGLang), without engine ids.
    Up,
}
