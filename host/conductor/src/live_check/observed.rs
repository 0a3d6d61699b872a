//! Answers of a worker: plain values, which `judge` checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kv_feed::FeedProbe;

/// All answers of one worker. Only `reached` has a value if the worker could not be reached.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Health page.
    pub(super) reached: Option<Result<Reached, String>>,
    pub(super) models: Option<Page<Vec<ListedModel>>>,
    /// Page `/version`.
    pub(super) version: Option<Page<String>>,
    /// The tokens of the probe text; by the worker and by the router.
    pub(super) tokens: Option<Tokens>,
    pub(super) events: Option<Events>,
    pub(super) bootstrap: Option<Page<Bootstrap>>,
    /// Role in SGLang's `/server_info`: `prefill`, `decode` or `null`.
    pub(super) disaggregation: Option<String>,
}

/// An answer of the health page.
#[derive(Debug, Clone)]
pub(super) struct Reached {
    pub(super) status: u16,
    pub(super) took: Duration,
    /// Clock difference in seconds (positive: ahead); none without a `Date`.
    pub(super) skew: Option<f64>,
}

/// Result of a query for a page.
#[derive(Debug)]
pub(super) enum Page<T> {
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
pub(super) struct ListedModel {
    pub(super) id: String,
    /// The model that it is an adapter of.
    pub(super) parent: Option<String>,
}

/// The probe text as tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) of_worker: Page<Vec<u32>>,
    /// Tokens of the router's own tokenizer, if it has one for the model.
    pub(super) of_router: Option<Result<Vec<u32>, String>>,
    /// The model that was named.
    pub(super) model: String,
}

/// KV-event sources of a worker.
#[derive(Debug)]
pub(super) enum Events {
    /// The configuration disables them.
    Off,
    /// Endpoints, found or written down, each probed.
    Endpoints(Vec<EventEndpoint>),
    /// The worker publishes none, or has no page with sources.
    None,
    /// The query failed.
    Failed(String),
    /// Workers behind TLS are not queried.
    NotAsked,
}

/// One publisher.
#[derive(Debug)]
pub(super) struct EventEndpoint {
    pub(super) endpoint: String,
    pub(super) replay: Option<String>,
    pub(super) probe: EndpointProbe,
}

/// Result of the connection.
#[derive(Debug)]
pub(super) enum EndpointProbe {
    /// The connection was tried.
    Tried(FeedProbe),
    /// No socket could be opened.
    Failed(String),
    /// The router binds the endpoint and the engine connects: only a running router can check it.
    Bound,
}

/// Answer of a bootstrap server.
#[derive(Debug)]
pub(super) enum Bootstrap {
    /// The engine ids by rank (mooncake).
    Engines(BTreeMap<u16, Arc<str>>),
    /// The engine answers (SGLang), without engine ids.
    Up,
}
