//! What a request sees of the configuration: one immutable value, loaded once at its entry and kept until its
//! answer begins. What is needed to the end of the answer, the pool and the limits, can be had apart from it.
//!
//! The only file with an `ArcSwap`. What must outlive a reload (connections, health, queues) is taken over from
//! the snapshot before, worker by worker and pool by pool.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use routing::{Dialect, Generation, PolicyVersions, Pool, Role, Worker, WorkerId};
use thiserror::Error;

use crate::admission::{self, Admission, AdmissionSpec, Gate, Objectives};
use crate::arm::TrialSpec;
use crate::authorization::Authorization;
use crate::clients::{ClientSpec, Clients};
use crate::events::{EventHub, ListenerReport};
use crate::expectation::Expectation;
use crate::health::{HealthSpec, ScrapeSpec};
use crate::keep_alive::KeepAlive;
use crate::link::WorkerLink;
use crate::metrics::{PoolMetrics, ProxyMetrics};
use crate::pd::{Bootstrap, PdPool, PdSpec};
use crate::record::RecordSpec;
use crate::retries::{RetryBudget, RetrySpec};
use crate::route::{Route, RouteError};
use crate::server::{Edge, EdgeSpec};
use crate::timeouts::PoolTimeouts;
use crate::tokens::{ModelsSpec, TokenSource, Tokenizing};
use crate::upstream::{self, ConnectionsSpec, UrlError};

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
    /// Model names that are LoRA adapters: their blocks match only themselves.
    pub adapters: Vec<Box<str>>,
    /// What becomes of a client's `Authorization`.
    pub authorization: Authorization,
    /// How many connections each worker gets, and how they begin.
    pub connections: ConnectionsSpec,
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

/// What bounds every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Longest body of a request, in bytes.
    pub body_bytes: usize,
    /// For a connection to a worker.
    pub connect_timeout: Duration,
    /// From the dispatch to the first byte of the worker's answer.
    pub first_byte_timeout: Duration,
    /// The same of its body, where that is streamed; none: the same time.
    pub first_token_timeout: Option<Duration>,
    /// Longest silence in the middle of a body, of the client's or the worker's.
    pub idle_timeout: Duration,
    /// From the request's head to the end of its answer; none: for ever.
    pub request_timeout: Option<Duration>,
    /// Most workers tried for one request.
    pub attempts: u32,
}

/// A snapshot cannot be built.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// A worker's URL cannot be connected to.
    #[error("use worker `{worker}`")]
    Worker {
        /// Its name.
        worker: Box<str>,
        /// What is wrong.
        #[source]
        source: UrlError,
    },
    /// A route makes no sense.
    #[error("use route {number}")]
    Route {
        /// Counted from 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: RouteError,
    },
    /// The system gives no threads.
    #[error("start the threads that tokenise")]
    Threads(#[source] io::Error),
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
    /// The same one in every snapshot.
    pub(crate) events: Arc<EventHub>,
    metrics: ProxyMetrics,
}

/// A pool of a snapshot.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) name: Box<str>,
    pub(crate) members: Box<[Member]>,
    pub(crate) tokens: TokenSource,
    pub(crate) expectation: Expectation,
    pub(crate) queue: Arc<Gate>,
    pub(crate) queue_limit: usize,
    pub(crate) queue_timeout: Duration,
    pub(crate) admission: Option<Admission>,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) adapters: Box<[Box<str>]>,
    pub(crate) authorization: Authorization,
    pub(crate) connections: ConnectionsSpec,
    pub(crate) pd: Option<PdPool>,
    pub(crate) health: HealthSpec,
    pub(crate) scrape: Option<ScrapeSpec>,
    pub(crate) retries: RetrySpec,
    pub(crate) budget: Arc<RetryBudget>,
    /// What bounds its requests, once their bodies are read.
    pub(crate) limits: RequestLimits,
    pub(crate) metrics: PoolMetrics,
}

impl PoolState {
    /// The members that serve a model.
    pub(crate) fn serving<'a>(&'a self, model: &'a str) -> impl Iterator<Item = &'a Member> + Clone {
        self.members.iter().filter(|member| member.worker.serves(model))
    }
}

/// A worker of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) worker: Arc<Worker>,
    pub(crate) link: Arc<WorkerLink>,
    /// Of a prefill worker whose dialect has one.
    pub(crate) bootstrap: Option<Arc<Bootstrap>>,
}

impl Snapshot {
    /// The snapshot that follows `previous`. Workers that are still there by id keep connections, health and
    /// metrics; pools that are still there by name keep their queue.
    ///
    /// # Errors
    /// [`SnapshotError`] when the spec makes no sense; nothing has changed then.
    pub fn next(
        previous: Option<&Self>,
        spec: SnapshotSpec,
        metrics: &ProxyMetrics,
    ) -> Result<Self, SnapshotError> {
        let mut kept = Kept::of(previous);
        let mut pools = Vec::with_capacity(spec.pools.len());
        for pool in spec.pools {
            let dialect = pool.pd.map(|pd| pd.dialect);
            let members = members(&pool.pool, dialect, &mut kept, metrics)?;
            let before = previous
                .and_then(|snapshot| snapshot.pools.iter().find(|before| before.name == pool.pool.name));
            for member in &members {
                member
                    .link
                    .health
                    .set_rules(&pool.health, &member.worker.spec().name);
            }
            let pool_metrics = metrics.pool(&pool.pool.name);
            let keep_alive = pool.keep_alive;
            let keep_alive = keep_alive.map(|every| KeepAlive::new(every, metrics, &pool.pool.name));
            let queue = before.map(|before| Arc::clone(&before.queue));
            let pd = pool.pd.map(|spec| PdPool {
                spec,
                metrics: metrics.pd(&pool.pool.name),
            });
            pools.push(Arc::new(PoolState {
                queue: queue.unwrap_or_else(|| Gate::new(metrics.gate(&pool.pool.name))),
                metrics: pool_metrics,
                name: pool.pool.name,
                members,
                tokens: pool.tokens,
                expectation: pool.expectation,
                queue_limit: pool.queue_limit,
                queue_timeout: pool.queue_timeout,
                admission: pool.admission.map(Admission::new),
                keep_alive,
                adapters: pool.adapters.into(),
                authorization: pool.authorization,
                connections: pool.connections,
                pd,
                health: pool.health,
                scrape: pool.scrape,
                retries: pool.retries,
                budget: before.map_or_else(Arc::default, |before| Arc::clone(&before.budget)),
                limits: pool.timeouts.over(spec.limits),
            }));
        }
        let before = previous.map_or(&[][..], |snapshot| &snapshot.routes);
        let routes = spec.routes.into_iter().enumerate().map(|(at, route)| {
            Route::new(route, before, &pools, metrics).map_err(|source| SnapshotError::Route {
                number: at + 1,
                source,
            })
        });
        Ok(Self {
            generation: spec.generation,
            routes: routes.collect::<Result<_, _>>()?,
            pools: pools.into(),
            clients: Clients::next(
                previous.map(|snapshot| &snapshot.clients),
                spec.clients,
                &metrics.clients,
            ),
            tokenizing: Tokenizing::next(
                previous.map(|snapshot| &snapshot.tokenizing),
                spec.models,
                &metrics.tokens,
            )
            .map_err(SnapshotError::Threads)?,
            limits: spec.limits,
            edge: Arc::new(Edge::next(previous.map(|snapshot| &*snapshot.edge), spec.edge)),
            record: spec.record,
            decision_headers: spec.decision_headers,
            metrics_on_listen: spec.metrics_on_listen,
            events: previous.map_or_else(
                || EventHub::new(metrics.events.clone()),
                |previous| Arc::clone(&previous.events),
            ),
            metrics: metrics.clone(),
        })
    }

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

    /// Every member of every pool; a worker of two pools twice.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.pools.iter().flat_map(|pool| &pool.members)
    }
}

/// What workers keep from one snapshot to the next.
struct Kept<'a> {
    links: HashMap<WorkerId, Arc<WorkerLink>>,
    bootstraps: HashMap<WorkerId, &'a Arc<Bootstrap>>,
}

impl<'a> Kept<'a> {
    fn of(previous: Option<&'a Snapshot>) -> Self {
        let members = || previous.into_iter().flat_map(Snapshot::members);
        Self {
            links: members()
                .map(|member| (member.worker.id(), Arc::clone(&member.link)))
                .collect(),
            bootstraps: members()
                .filter_map(|member| Some((member.worker.id(), member.bootstrap.as_ref()?)))
                .collect(),
        }
    }
}

fn members(
    pool: &Pool,
    dialect: Option<Dialect>,
    kept: &mut Kept<'_>,
    metrics: &ProxyMetrics,
) -> Result<Box<[Member]>, SnapshotError> {
    let member = |worker: &Arc<Worker>| {
        let link = match kept.links.get(&worker.id()) {
            Some(link) => Arc::clone(link),
            None => {
                let link = WorkerLink::new(worker, metrics).map_err(|source| SnapshotError::Worker {
                    worker: worker.spec().name.clone(),
                    source,
                })?;
                let link = Arc::new(link);
                kept.links.insert(worker.id(), Arc::clone(&link));
                link
            }
        };
        let before = kept.bootstraps.get(&worker.id()).copied();
        let bootstrap = bootstrap(worker, dialect, before).map_err(|source| SnapshotError::Worker {
            worker: worker.spec().name.clone(),
            source,
        })?;
        Ok(Member {
            worker: Arc::clone(worker),
            link,
            bootstrap,
        })
    };
    pool.workers.iter().map(member).collect()
}

/// A prefill worker's bootstrap server; the one it had, while its address stays.
fn bootstrap(
    worker: &Worker,
    dialect: Option<Dialect>,
    before: Option<&Arc<Bootstrap>>,
) -> Result<Option<Arc<Bootstrap>>, UrlError> {
    let spec = worker.spec();
    let (Some(dialect), Some(url), Role::Prefill) = (dialect, &spec.bootstrap, spec.role) else {
        return Ok(None);
    };
    let has_ids = dialect == Dialect::Mooncake;
    if let Some(before) = before.filter(|before| before.is(url, has_ids)) {
        return Ok(Some(Arc::clone(before)));
    }
    Bootstrap::new(url, has_ids).map(|fresh| Some(Arc::new(fresh)))
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

/// Holds the snapshot in force. Readers load it without waiting; there is one writer, the composition root.
#[derive(Debug)]
pub struct SnapshotCell {
    current: ArcSwap<Snapshot>,
}

impl SnapshotCell {
    /// A cell with its first snapshot.
    #[must_use]
    pub fn new(first: Snapshot) -> Self {
        first.events.prepare(None, &first);
        admission::open_gates(&first.pools);
        upstream::configure(&first);
        Self {
            current: ArcSwap::from_pointee(first),
        }
    }

    /// The snapshot in force.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// What is decided before a request is looked into.
    pub(crate) fn edge(&self) -> Arc<Edge> {
        Arc::clone(&self.current.load().edge)
    }

    /// Puts another in force for requests that come from now on. Those under way keep theirs.
    pub fn store(&self, next: Snapshot) {
        let next = Arc::new(next);
        next.events.prepare(Some(&self.current.load()), &next);
        upstream::configure(&next);
        let before = self.current.swap(Arc::clone(&next));
        next.events.part(&before, &next);
        admission::open_gates(&next.pools);
        let stays = |name: &str| next.members().any(|member| &*member.worker.spec().name == name);
        for gone in before.members().map(|member| &*member.worker.spec().name) {
            if !stays(gone) {
                next.metrics.forget_worker(gone);
            }
        }
        for gone in before.clients.gone(&next.clients) {
            next.metrics.clients.forget(gone);
        }
    }
}
