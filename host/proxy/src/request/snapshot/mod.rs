//! Configuration snapshot: one immutable value, loaded once at a request's entry and kept until its answer begins. The
//! pool and the limits are needed to the end of the answer, and can be held without the snapshot.
//!
//! `snapshot/plan.rs` checks a [`SnapshotSpec`] and builds the snapshot, `snapshot/cell.rs` makes it the active one.
//! State that must outlive a reload (connections, health, queues) is taken over from the snapshot before, worker by
//! worker and pool by pool.

mod active_fleet;
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
pub use self::report::PoolReuse;
use crate::base::timeouts::{PoolTimeouts, RequestLimits};
use crate::dispatch::expectation::Expectation;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::settings::DecisionSettings;
use crate::dispatch::split::PdSpec;
use crate::fleet::catalog::{AdapterSpec, ModelListSpec};
use crate::fleet::health::{HealthSpec, ScrapeSpec};
use crate::fleet::pool::{Member, WorkerPool};
use crate::limits::admission::{AdmissionSpec, Objectives};
use crate::limits::clients::{ClientSpec, Clients};
use crate::limits::edge_settings::{EdgeSettings, EdgeSpec};
use crate::limits::memory::MemoryReport;
use crate::limits::retries::RetrySpec;
use crate::observe::events::ListenerReport;
use crate::observe::experiments::TrialSpec;
use crate::observe::spans::TracingSpec;
use crate::record::RecordSpec;
use crate::request::metrics::ProxyMetrics;
use crate::request::route::Route;
use crate::tokens::{ModelsSpec, TokenSource, Tokenizing};

/// Parts that a snapshot is built from.
#[derive(Debug)]
pub struct SnapshotSpec {
    /// Number of the snapshot.
    pub generation: Generation,
    /// Pools, with distinct names.
    pub pools: Vec<PoolSpec>,
    /// Routes in the order in which they are tried.
    pub routes: Vec<RouteSpec>,
    /// Clients that are allowed, with distinct names. Empty: every client is allowed, and needs no key.
    pub clients: Vec<ClientSpec>,
    /// Sources of the models' tokens.
    pub models: ModelsSpec,
    /// Limits of every request.
    pub limits: RequestLimits,
    /// Settings of the edge, which apply before a request is inspected.
    pub edge: EdgeSpec,
    /// Settings of the decision log.
    pub record: RecordSpec,
    /// Settings of traces. `None` for no traces.
    pub traces: Option<Arc<TracingSpec>>,
    /// Set if answers report the deciding policy, the chosen worker, and how much of the prompt that worker holds.
    pub decision_headers: bool,
    /// Set if clients may read `/metrics`.
    pub metrics_on_listen: bool,
    /// Headers of requests that policies may read, in lower case.
    pub policy_headers: Vec<String>,
}

/// Pool, and the treatment of its requests.
#[derive(Debug)]
pub struct PoolSpec {
    /// Name and workers of the pool.
    pub pool: Pool,
    /// Source of a prompt's tokens.
    pub tokens: TokenSource,
    /// Prompts that the workers are expected to have cached, besides those that their events report.
    pub expectation: Expectation,
    /// Most requests held at once; 0 holds none.
    pub queue_limit: usize,
    /// Longest time a request is held in all.
    pub queue_timeout: Duration,
    /// Admission control: the limits, and the priorities. `None`: every request is admitted as it comes.
    pub admission: Option<AdmissionSpec>,
    /// Idle time after which a comment is sent on a stream. `None`: never.
    pub keep_alive: Option<Duration>,
    /// LoRA adapters that are served whether a worker lists them or not.
    pub adapters: Vec<AdapterSpec>,
    /// Query for the workers' models. `None` where they are not queried.
    pub model_list: Option<ModelListSpec>,
    /// Treatment of a client's `Authorization`.
    pub authorization: Authorization,
    /// Number of connections to each worker, and how they begin.
    pub connections: ConnectionsSpec,
    /// Set if clients may set the members of a hand-over.
    pub accept_handover: bool,
    /// Set if each tenant's prompts have a `cache_salt` of its own.
    pub isolate_prefixes: bool,
    /// Split of requests between prefill and decode workers. `None` where they are not split.
    pub pd: Option<PdSpec>,
    /// Rules for the ejection of its workers.
    pub health: HealthSpec,
    /// Query for the workers' load. `None` where they are not queried.
    pub scrape: Option<ScrapeSpec>,
    /// Rules for retries.
    pub retries: RetrySpec,
    /// Timeouts of this pool that differ from [`RequestLimits`].
    pub timeouts: PoolTimeouts,
}

/// Route: which requests go to which pool, decided by which policy.
pub struct RouteSpec {
    /// Globs (`*`, `?`), one of which the model must match; empty for any request.
    pub models: Vec<String>,
    /// The request's whole path, without its query. `None` for any.
    pub path: Option<String>,
    /// Headers the request must have, with exactly these values.
    pub headers: Vec<(String, String)>,
    /// Name of a pool of the same snapshot.
    pub pool: String,
    /// Policy that decides: on a worker, or on both of a pair at once where it can ([`routing::FeaturePlan::pairs`]),
    /// else on one after the other.
    pub policy: Arc<PolicyVersions>,
    /// Policy for the prefill worker instead, in a pool that splits requests.
    pub prefill_policy: Option<Arc<PolicyVersions>>,
    /// Policy for the decode worker instead.
    pub decode_policy: Option<Arc<PolicyVersions>>,
    /// Policies that are tried beside `policy`.
    pub trials: TrialSpec,
    /// Objectives of the route's requests.
    pub objectives: Objectives,
}

/// One active configuration.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) generation: Generation,
    /// Pools, each to be kept apart from the routes and their policies.
    pub(crate) pools: Box<[Arc<PoolState>]>,
    pub(crate) routes: Box<[Route]>,
    pub(crate) tokenizing: Tokenizing,
    pub(crate) clients: Clients,
    pub(crate) limits: RequestLimits,
    pub(crate) edge: Arc<EdgeSettings>,
    pub(crate) metrics_on_listen: bool,
    pub(crate) settings: Arc<DecisionSettings>,
    metrics: ProxyMetrics,
}

impl Snapshot {
    /// Returns the number of the snapshot.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns `true` if clients must present a key.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        self.clients.are_known()
    }

    /// Returns the microseconds on the clock of decisions.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.settings.events.now_us()
    }

    /// Returns a report of the memory that the process has.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        self.edge.memory.report()
    }

    /// Returns every worker of every pool, by its id and name.
    #[must_use]
    pub fn worker_names(&self) -> BTreeMap<WorkerId, Box<str>> {
        let name = |member: &Member| (member.worker.id(), member.worker.spec().name.clone());
        self.members().map(name).collect()
    }

    /// Returns the policies that receive events.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerReport> {
        self.settings.events.reports()
    }

    /// Returns the pool of that name.
    pub(crate) fn pool_named(&self, name: &str) -> Option<&Arc<PoolState>> {
        self.pools.iter().find(|pool| *pool.workers.name == *name)
    }

    /// Returns the pool that a route leads to.
    pub(crate) fn pool_of(&self, route: usize) -> &Arc<PoolState> {
        &self.pools[self.routes[route].pool]
    }

    /// Returns the workers of every pool.
    pub(crate) fn worker_pools(&self) -> impl Iterator<Item = &Arc<WorkerPool>> {
        self.pools.iter().map(|pool| &pool.workers)
    }

    /// Returns every member of every pool. A worker of two pools is returned twice.
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
