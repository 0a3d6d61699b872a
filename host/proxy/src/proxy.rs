//! State that all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use inference_api::EndpointClass;
use kv_index::SharedPrefixIndex;
use prometheus_client::registry::Registry;
use routing::{RunNumber, WorkerId};

use crate::base::readiness::Readiness;
use crate::base::reply::Refusal;
use crate::base::request_id::MadeId;
use crate::dispatch::dispatcher::Dispatcher;
use crate::dispatch::sources::DecisionSources;
use crate::fleet::feeds::LiveFeeds;
use crate::limits::start_pace::StartPace;
use crate::observe::exposition::Exposition;
use crate::request::metrics::ProxyMetrics;
use crate::request::model_list::ModelList;
use crate::request::responses::ResponseTable;
use crate::request::snapshot::SnapshotCell;

/// Parts that a proxy is built from.
#[derive(Debug)]
pub struct ProxyParts {
    /// The active configuration.
    pub snapshots: Arc<SnapshotCell>,
    /// Index of the prefixes that each worker holds.
    pub index: Arc<SharedPrefixIndex>,
    /// Workers whose events the index receives.
    pub live: Arc<LiveFeeds>,
    /// Metrics, registered in `registry`.
    pub metrics: ProxyMetrics,
    /// The complete registry that `/metrics` shows.
    pub registry: Arc<Registry>,
    /// Readiness that `/readyz` reports.
    pub readiness: Readiness,
}

/// The router, but for its listeners: see [`serve`](crate::serve).
#[derive(Debug)]
pub struct Proxy {
    pub(crate) snapshots: Arc<SnapshotCell>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) metrics: ProxyMetrics,
    pub(crate) exposition: Exposition,
    pub(crate) readiness: Readiness,
    pub(crate) models: ModelList,
    pub(crate) starts: StartPace,
    /// Table of response ids: the worker that made each response.
    pub(crate) responses: Arc<ResponseTable>,
    /// Number that distinguishes this run's request ids and lots from those of other runs.
    pub(crate) run: RunNumber,
    requests: AtomicU64,
}

impl Proxy {
    /// Creates a proxy that serves no request yet.
    #[must_use]
    pub fn new(parts: ProxyParts) -> Arc<Self> {
        let first = parts.snapshots.load();
        let dispatcher = Arc::new(Dispatcher::new(DecisionSources::new(
            parts.index,
            parts.live,
            Arc::clone(&first.settings.events),
        )));
        Arc::new(Self {
            run: first.settings.record.recorder.run(),
            starts: StartPace::new(dispatcher.background.clone()),
            dispatcher,
            snapshots: parts.snapshots,
            responses: Arc::new(ResponseTable::new(parts.metrics.responses.clone())),
            exposition: Exposition::new(parts.registry, parts.metrics.dispatch.exemplars.clone()),
            metrics: parts.metrics,
            readiness: parts.readiness,
            models: ModelList::default(),
            requests: AtomicU64::new(0),
        })
    }

    /// Returns the number of a new request, from 1.
    pub(crate) fn next_seq(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a refusal before the route of the request is known. Returns the refusal.
    pub(crate) fn unrouted(&self, class: EndpointClass, refusal: Refusal) -> Refusal {
        self.metrics.dispatch.unrouted(class, &refusal);
        self.metrics.edge.refused(&refusal);
        refusal
    }

    /// Makes an id for a request that came without one.
    pub(crate) fn request_id(&self, seq: u64) -> HeaderValue {
        let id = MadeId::new(self.run.0 as u32, seq);
        HeaderValue::from_maybe_shared(Bytes::from_owner(id))
            .expect("hexadecimal digits and dashes make a header value")
    }

    /// Returns the microseconds since the start, on the clock of the policies.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.dispatcher.sources.now_us()
    }

    /// Returns the time for which blocks are expected at each worker of the fleet. The index forgets them by it. A
    /// worker whose process has ended since the last call is left out once, because its cache has gone with it.
    #[must_use]
    pub fn take_expectations(&self) -> Vec<(WorkerId, Duration)> {
        let snapshot = self.snapshots.load();
        let pools = || snapshot.pools.iter();
        let members = pools().flat_map(|pool| pool.workers.members.iter());
        // All of them first: a worker may be in several pools.
        let ended = members.filter(|member| member.link.upstream.take_refused());
        let ended: Vec<WorkerId> = ended.map(|member| member.worker.id()).collect();
        let lifetimes = pools().flat_map(|pool| {
            let workers = pool.workers.members.iter().map(|member| member.worker.id());
            let present = workers.filter(|worker| !ended.contains(worker));
            present.map(|worker| {
                let is_live = self.dispatcher.sources.live.is_live(worker);
                (worker, pool.prompts.expectation.lifetime(is_live))
            })
        });
        lifetimes.collect()
    }
}
