//! What all requests share.

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

/// What a proxy is put together from.
#[derive(Debug)]
pub struct ProxyParts {
    /// The configuration in force.
    pub snapshots: Arc<SnapshotCell>,
    /// Who holds which prefix.
    pub index: Arc<SharedPrefixIndex>,
    /// Whose events the index knows.
    pub live: Arc<LiveFeeds>,
    /// Registered in `registry`.
    pub metrics: ProxyMetrics,
    /// What `/metrics` shows, complete.
    pub registry: Arc<Registry>,
    /// What `/readyz` tells.
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
    /// Which worker made which response.
    pub(crate) responses: Arc<ResponseTable>,
    pub(crate) events: Arc<EventHub>,
    /// What goes on although no client waits for it.
    pub(crate) background: TaskTracker,
    /// Makes up numbers that no other router makes up.
    random: RandomState,
    /// Tells this run's request ids and lots from those of others.
    pub(crate) run: RunNumber,
    requests: AtomicU64,
    transfers: AtomicU64,
}

impl Proxy {
    /// A proxy that serves nobody yet.
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

    /// The number of a request that has just come, from 1.
    pub(crate) fn next_seq(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An id for a request that came without one.
    pub(crate) fn request_id(&self, seq: u64) -> HeaderValue {
        let id = format!("req-{:08x}-{seq:x}", self.run.0 as u32);
        HeaderValue::try_from(id).expect("hexadecimal digits and dashes make a header value")
    }

    /// A name for a transfer of KV cache.
    pub(crate) fn transfer_id(&self) -> String {
        let number = self.transfers.fetch_add(1, Ordering::Relaxed);
        format!("xfer-{:016x}-{number:x}", self.random.hash_one(0))
    }

    /// A number under which two workers meet; the next few are free as well.
    pub(crate) fn room(&self) -> u64 {
        let number = self.transfers.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(number) >> 1
    }

    /// Microseconds since the start, on the clock of the policies.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.events.now_us()
    }
}
