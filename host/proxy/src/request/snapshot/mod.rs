//! Configuration as requests see it: one immutable value, loaded once at a request's entry and kept until its
//! answer begins. What is needed to the end of the answer, the pool and the limits, can be had apart from it.
//!
//! `snapshot/plan.rs` checks a [`SnapshotSpec`] and builds the snapshot, `snapshot/cell.rs` makes it the active one. What must
//! outlive a reload (connections, health, queues) is taken over from the snapshot before, worker by worker and pool by pool.

mod cell;
mod plan;
mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use routing::{Generation, PolicyVersions, Pool, WorkerId};
use worker_client::{Authorization, ConnectionsSpec};

pub use self::cell::SnapshotCell;
pub use self::plan::{SnapshotError, SnapshotPlan};
use crate::base::timeouts::{PoolTimeouts, RequestLimits};
use crate::dispatch::speculative_insert::Expectation;
use crate::dispatch::split::{PdPool, PdSpec};
use crate::edge::{Edge, EdgeSpec};
use crate::fleet::catalog::{AdapterSpec, ModelListSpec};
use crate::fleet::health::{HealthSpec, ScrapeSpec};
use crate::fleet::pool::{Member, WorkerPool};
use crate::limits::admission::{Admission, AdmissionController, AdmissionSpec, Objectives};
use crate::limits::clients::{ClientSpec, Clients};
use crate::limits::memory::MemoryReport;
use crate::limits::retries::{RetryBudget, RetrySpec};
use crate::metrics::{PoolMetrics, ProxyMetrics};
use crate::observe::events::{EventHub, ListenerReport};
use crate::observe::experiments::TrialSpec;
use crate::record::RecordSpec;
use crate::request::keep_alive::KeepAlive;
use crate::request::route::Route;
use crate::tokens::{ModelsSpec, TokenSource, Tokenizing};

/// Everything a snapshot is made of.
#[derive(Debug)]
pub struct SnapshotSpec {
    /// Counts snapshots.
    pub generation: Generation,
    /// Pools, with distinct names.
    pub pools: Vec<PoolSpec>,
    /// Routes in the order in which they are tried.
    pub routes: Vec<RouteSpec>,
    /// Who may ask, with distinct names; none: everybody may, and needs no key.
    pub clients: Vec<ClientSpec>,
    /// Where the tokens of models come from.
    pub models: ModelsSpec,
    /// What bounds every request.
    pub limits: RequestLimits,
    /// What is decided before they are looked into.
    pub edge: EdgeSpec,
    /// What is recorded of them.
    pub record: RecordSpec,
    /// Whether answers tell who decided, whom it chose, and what that one holds of the prompt.
    pub decision_headers: bool,
    /// Whether clients may read `/metrics`.
    pub metrics_on_listen: bool,
    /// Headers of requests that policies may read, in lower case.
    pub policy_headers: Vec<String>,
}

/// A pool and how requests for it are treated.
#[derive(Debug)]
pub struct PoolSpec {
    /// Its name and workers.
    pub pool: Pool,
    /// How the tokens of a prompt become known.
    pub tokens: TokenSource,
    /// What its workers are expected to have cached besides what their events tell.
    pub expectation: Expectation,
    /// Most requests held at once; 0 holds none.
    pub queue_limit: usize,
    /// Longest time a request is held in all.
    pub queue_timeout: Duration,
    /// What is let in, and whom first; none: everything, as it comes.
    pub admission: Option<AdmissionSpec>,
    /// Comments are sent on streams that say nothing for so long; none: never.
    pub keep_alive: Option<Duration>,
    /// LoRA adapters that are served whether a worker lists them or not.
    pub adapters: Vec<AdapterSpec>,
    /// How its workers are asked for their models; none where they are not.
    pub model_list: Option<ModelListSpec>,
    /// What becomes of a client's `Authorization`.
    pub authorization: Authorization,
    /// How many connections each worker gets, and how they begin.
    pub connections: ConnectionsSpec,
    /// Whether clients may set the members of a hand-over.
    pub accept_handover: bool,
    /// Whether each tenant's prompts have a `cache_salt` of its own.
    pub isolate_prefixes: bool,
    /// How requests are split between prefill and decode workers; none where they are not.
    pub pd: Option<PdSpec>,
    /// When its workers are kept away from.
    pub health: HealthSpec,
    /// How they are asked for their load; none where they are not.
    pub scrape: Option<ScrapeSpec>,
    /// How requests are tried again.
    pub retries: RetrySpec,
    /// What is other for this pool than [`RequestLimits`] say.
    pub timeouts: PoolTimeouts,
}

/// Which requests go to which pool, decided by which policy.
pub struct RouteSpec {
    /// Globs (`*`, `?`), one of which the model must match; empty for any request.
    pub models: Vec<String>,
    /// The request's whole path, without its query; none for any.
    pub path: Option<String>,
    /// Headers the request must have, with exactly these values.
    pub headers: Vec<(String, String)>,
    /// Name of a pool of the same snapshot.
    pub pool: String,
    /// What decides: on a worker, or on both of a pair at once where it can ([`routing::FeaturePlan::pairs`]), else
    /// on one after the other.
    pub policy: Arc<PolicyVersions>,
    /// What decides on the prefill worker instead, in a pool that splits requests.
    pub prefill_policy: Option<Arc<PolicyVersions>>,
    /// What decides on the decode worker instead.
    pub decode_policy: Option<Arc<PolicyVersions>>,
    /// What is tried out beside `policy`.
    pub trials: TrialSpec,
    /// What its requests are to get.
    pub objectives: Objectives,
}

/// One configuration in force.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) generation: Generation,
    /// Each to be kept apart from the routes and their policies.
    pub(crate) pools: Box<[Arc<PoolState>]>,
    pub(crate) routes: Box<[Route]>,
    pub(crate) tokenizing: Tokenizing,
    pub(crate) clients: Clients,
    pub(crate) limits: RequestLimits,
    pub(crate) edge: Arc<Edge>,
    pub(crate) record: RecordSpec,
    pub(crate) decision_headers: bool,
    pub(crate) metrics_on_listen: bool,
    /// In lower case.
    pub(crate) policy_headers: Box<[String]>,
    /// The same one in every snapshot.
    pub(crate) events: Arc<EventHub>,
    metrics: ProxyMetrics,
}

/// A pool of a snapshot.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) workers: Arc<WorkerPool>,
    pub(crate) tokens: TokenSource,
    pub(crate) expectation: Expectation,
    pub(crate) queue: Arc<AdmissionController>,
    pub(crate) queue_limit: usize,
    pub(crate) queue_timeout: Duration,
    pub(crate) admission: Option<Admission>,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) accept_handover: bool,
    pub(crate) isolate_prefixes: bool,
    pub(crate) pd: Option<PdPool>,
    pub(crate) retries: RetrySpec,
    pub(crate) budget: Arc<RetryBudget>,
    /// What bounds its requests, once their bodies are read.
    pub(crate) limits: RequestLimits,
    pub(crate) metrics: PoolMetrics,
}

impl Snapshot {
    /// Counts snapshots.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether clients must show a key.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        self.clients.are_known()
    }

    /// Microseconds on the clock of decisions.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.events.now_us()
    }

    /// What the process has of its memory.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        self.edge.memory.report()
    }

    /// Every worker of every pool, by its id and name.
    #[must_use]
    pub fn worker_names(&self) -> BTreeMap<WorkerId, Box<str>> {
        let name = |member: &Member| (member.worker.id(), member.worker.spec().name.clone());
        self.members().map(name).collect()
    }

    /// The policies that are told events.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerReport> {
        self.events.reports()
    }

    /// The pool that a route leads to.
    pub(crate) fn pool_of(&self, route: usize) -> &Arc<PoolState> {
        &self.pools[self.routes[route].pool]
    }

    /// Returns the workers of every pool.
    pub(crate) fn worker_pools(&self) -> impl Iterator<Item = &Arc<WorkerPool>> {
        self.pools.iter().map(|pool| &pool.workers)
    }

    /// Every member of every pool; a worker of two pools twice.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.pools.iter().flat_map(|pool| &pool.workers.members)
    }
}

impl fmt::Debug for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteSpec")
            .field("models", &self.models)
            .field("path", &self.path)
            .field("pool", &self.pool)
            .field("policy", &self.policy.name())
            .finish_non_exhaustive()
    }
}
