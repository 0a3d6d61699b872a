//! What a worker said when it was asked: plain values, judged elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kv_feed::FeedProbe;

/// Everything that was asked of one worker. Nothing is filled in but `reached` where it could not be reached.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Its health page.
    pub(super) reached: Option<Result<Reached, String>>,
    pub(super) models: Option<Page<Vec<ListedModel>>>,
    /// Of the page `/version`.
    pub(super) version: Option<Page<String>>,
    /// The tokens of the probe text; by the worker and by the router.
    pub(super) tokens: Option<Tokens>,
    pub(super) events: Option<Events>,
    pub(super) bootstrap: Option<Page<Bootstrap>>,
    /// What SGLang's `/server_info` says that it does: `prefill`, `decode` or `null`.
    pub(super) disaggregation: Option<String>,
}

/// An answer of the health page.
#[derive(Debug, Clone)]
pub(super) struct Reached {
    pub(super) status: u16,
    pub(super) took: Duration,
    /// How far the worker's clock is from ours, in seconds (positive: ahead), as far as its answer shows; none without a `Date`.
    pub(super) skew: Option<f64>,
}

/// What became of asking for a page.
#[derive(Debug)]
pub(super) enum Page<T> {
    /// It is there and was understood.
    Read(T),
    /// The worker has no such page.
    Absent,
    /// It refuses our key, or the lack of one, with this status.
    Unauthorized(u16),
    /// It could not be had or not be understood.
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
    /// Where the router has a tokenizer for the model.
    pub(super) of_router: Option<Result<Vec<u32>, String>>,
    /// The model that was named.
    pub(super) model: String,
}

/// Where a worker publishes KV events.
#[derive(Debug)]
pub(super) enum Events {
    /// The configuration says not to follow any.
    Off,
    /// Its endpoints, found or written down, each probed.
    Endpoints(Vec<EventEndpoint>),
    /// It says that it publishes none, or has no page that says.
    None,
    /// It could not be asked.
    Failed(String),
    /// Workers behind TLS are not asked.
    NotAsked,
}

/// One publisher.
#[derive(Debug)]
pub(super) struct EventEndpoint {
    pub(super) endpoint: String,
    pub(super) replay: Option<String>,
    pub(super) probe: EndpointProbe,
}

/// What became of the connection.
#[derive(Debug)]
pub(super) enum EndpointProbe {
    /// It was tried.
    Tried(FeedProbe),
    /// No socket could be opened.
    Failed(String),
    /// The router binds it and the engine connects: only the router can tell.
    Bound,
}

/// What a bootstrap server says.
#[derive(Debug)]
pub(super) enum Bootstrap {
    /// The engine ids by rank (mooncake).
    Engines(BTreeMap<u16, Arc<str>>),
    /// It answers (SGLang), and has nothing more to say.
    Up,
}
