//! State that all requests share.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use kv_index::SharedPrefixIndex;
use prometheus_client::registry::Registry;
use routing::{LeastLoaded, RunNumber};
use tokio_util::task::TaskTracker;

use crate::base::readiness::Readiness;
use crate::base::throttle::Throttle;
use crate::fleet::feeds::LiveFeeds;
use crate::metrics::ProxyMetrics;
use crate::observe::events::EventHub;
use crate::observe::shadow::ShadowQueue;
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
    pub(crate) index: Arc<SharedPrefixIndex>,
    pub(crate) live: Arc<LiveFeeds>,
    pub(crate) metrics: ProxyMetrics,
    pub(crate) registry: Arc<Registry>,
    pub(crate) readiness: Readiness,
    pub(crate) fallback: LeastLoaded,
    pub(crate) fault_log: Throttle,
    pub(crate) models: ModelList,
    pub(crate) shadows: ShadowQueue,
    /// Table of response ids: the worker that made each response.
    pub(crate) responses: Arc<ResponseTable>,
    pub(crate) events: Arc<EventHub>,
    /// Tasks that continue although no client waits for them.
    pub(crate) background: TaskTracker,
    /// Source of numbers that no other router makes up.
    random: RandomState,
    /// Number that distinguishes this run's request ids and lots from those of other runs.
    pub(crate) run: RunNumber,
    requests: AtomicU64,
    transfers: AtomicU64,
}

impl Proxy {
    /// Creates a proxy that serves no request yet.
    #[must_use]
    pub fn new(parts: ProxyParts) -> Arc<Self> {
        let first = parts.snapshots.load();
        Arc::new(Self {
            run: first.record.recorder.run(),
            events: Arc::clone(&first.events),
            snapshots: parts.snapshots,
            index: parts.index,
            live: parts.live,
            responses: Arc::new(ResponseTable::new(parts.metrics.responses.clone())),
            metrics: parts.metrics,
            registry: parts.registry,
            readiness: parts.readiness,
            fallback: LeastLoaded::default(),
            fault_log: Throttle::default(),
            models: ModelList::default(),
            shadows: ShadowQueue::default(),
            background: TaskTracker::new(),
            random: RandomState::new(),
            requests: AtomicU64::new(0),
            transfers: AtomicU64::new(1),
        })
    }

    /// Returns the number of a new request, from 1.
    pub(crate) fn next_seq(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes an id for a request that came without one.
    pub(crate) fn request_id(&self, seq: u64) -> HeaderValue {
        let id = format!("req-{:08x}-{seq:x}", self.run.0 as u32);
        HeaderValue::try_from(id).expect("hexadecimal digits and dashes make a header value")
    }

    /// Makes a name for a transfer of KV cache.
    pub(crate) fn transfer_id(&self) -> String {
        let number = self.transfers.fetch_add(1, Ordering::Relaxed);
        format!("xfer-{:016x}-{number:x}", self.random.hash_one(0))
    }

    /// Returns a number under which two workers meet. The next few numbers are free as well.
    pub(crate) fn room(&self) -> u64 {
        let number = self.transfers.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(number) >> 1
    }

    /// Returns the microseconds since the start, on the clock of the policies.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.events.now_us()
    }
}
