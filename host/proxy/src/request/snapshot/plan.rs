//! Snapshot plan: a snapshot that is checked and not yet active.
//!
//! [`SnapshotPlan::new`] does everything that can fail, and changes nothing of the running state. No metric gets a new
//! label, and no worker gets other rules. A plan that is dropped leaves no trace. [`super::SnapshotCell::store`] builds
//! its snapshot, which cannot fail.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use placement::FleetVersion;
use routing::{Dialect, Pool, Role, Worker, WorkerId};
use thiserror::Error;
use worker_client::{ConnectionPool, UrlError};

use super::{PoolSpec, RouteSpec, Snapshot, SnapshotSpec};
use crate::base::keep_alive::KeepAlive;
use crate::base::timeouts::RequestLimits;
use crate::dispatch::pool_state::{BodyRules, PoolRetries, PoolState, PromptRules};
use crate::dispatch::settings::DecisionSettings;
use crate::dispatch::split::{Detection, PdPool, PdSpec};
use crate::fleet::bootstrap::Bootstrap;
use crate::fleet::catalog::ModelCatalog;
use crate::fleet::pool::{CheckRules, Member, WorkerPool};
use crate::fleet::worker::WorkerHandle;
use crate::limits::admission::{Admission, AdmissionController, PoolQueue};
use crate::limits::clients::Clients;
use crate::limits::edge_settings::EdgeSettings;
use crate::observe::events::EventHub;
use crate::request::metrics::ProxyMetrics;
use crate::request::route::{Route, RouteError, RoutePlan};
use crate::tokens::{Tokenizing, TokenizingPlan};

/// Error of a snapshot that cannot be built.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// A worker's URL cannot be connected to.
    #[error("use worker `{worker}`")]
    Worker {
        /// Name of the worker.
        worker: Box<str>,
        /// The error.
        #[source]
        source: UrlError,
    },
    /// A route is invalid.
    #[error("use route {number}")]
    Route {
        /// Number of the route, from 1.
        number: usize,
        /// The error.
        #[source]
        source: RouteError,
    },
    /// The system gives no threads.
    #[error("start the threads that tokenize")]
    Threads(#[source] io::Error),
}

/// Checked [`SnapshotSpec`], with all parts whose creation could fail.
#[derive(Debug)]
pub struct SnapshotPlan {
    /// Specification without its pools, routes and models, which are below.
    spec: SnapshotSpec,
    pools: Vec<PoolPlan>,
    routes: Vec<RoutePlan>,
    tokenizing: TokenizingPlan,
    /// Runtime states of all workers, once each.
    links: Vec<LinkPlan>,
}

#[derive(Debug)]
struct PoolPlan {
    spec: PoolSpec,
    members: Vec<MemberPlan>,
    /// Dialect detection, where the pool names no dialect.
    detection: Option<Arc<Detection>>,
}

#[derive(Debug)]
struct MemberPlan {
    worker: Arc<Worker>,
    /// Index among the plan's links.
    link: usize,
    bootstrap: Option<Arc<Bootstrap>>,
}

/// Runtime state of a worker: that of the snapshot before, or a new one.
#[derive(Debug)]
enum LinkPlan {
    Kept(Arc<WorkerHandle>),
    New(Arc<Worker>, Box<ConnectionPool>),
}

impl SnapshotPlan {
    /// Checks the snapshot that is to follow `previous`. Workers that are still there by id keep connections, health
    /// and metrics. Pools that are still there by name keep their queue.
    ///
    /// # Errors
    /// [`SnapshotError`] when the spec makes no sense.
    pub fn new(previous: Option<&Snapshot>, mut spec: SnapshotSpec) -> Result<Self, SnapshotError> {
        let routes = std::mem::take(&mut spec.routes);
        let routes = plan_routes(routes, &spec.pools)?;
        let mut workers = Workers::kept_from(previous);
        let mut pools = Vec::with_capacity(spec.pools.len());
        for pool in std::mem::take(&mut spec.pools) {
            let before = previous.and_then(|snapshot| snapshot.pool_named(&pool.pool.name));
            let detection = detection(pool.pd, before);
            let dialect = pool.pd.map(|pd| PoolDialect {
                known: pd.dialect.or_else(|| detection.as_ref()?.dialect()),
                is_detected: detection.is_some(),
            });
            let members = workers.members(&pool.pool, dialect)?;
            pools.push(PoolPlan {
                spec: pool,
                members,
                detection,
            });
        }
        let before = previous.map(|snapshot| &snapshot.tokenizing);
        let models = std::mem::take(&mut spec.models);
        Ok(Self {
            tokenizing: TokenizingPlan::new(before, models).map_err(SnapshotError::Threads)?,
            spec,
            pools,
            routes,
            links: workers.links,
        })
    }

    /// Builds the snapshot, which takes the place of `previous`. Its metrics have their labels from now on. All other
    /// state that is shared with `previous` stays as it is until the snapshot becomes active.
    pub(crate) fn build(self, previous: Option<&Snapshot>, metrics: &ProxyMetrics) -> Snapshot {
        let spec = self.spec;
        let links = self.links.into_iter().map(|link| link.build(metrics));
        let links: Vec<Arc<WorkerHandle>> = links.collect();
        let pools = self.pools.into_iter().map(|pool| {
            let before = previous.and_then(|snapshot| snapshot.pool_named(&pool.spec.pool.name));
            Arc::new(pool.build(before, &links, spec.limits, metrics))
        });
        let pools: Box<[_]> = pools.collect();
        let before = previous.map_or(&[][..], |snapshot| &snapshot.routes);
        let routes = self.routes.into_iter();
        Snapshot {
            generation: spec.generation,
            routes: routes
                .enumerate()
                .map(|(at, route)| Route::new(at, route, &pools, before, metrics))
                .collect(),
            pools,
            tokenizing: Tokenizing::new(
                self.tokenizing,
                previous.map(|snapshot| &snapshot.tokenizing),
                &metrics.tokens,
            ),
            clients: Clients::next(
                previous.map(|snapshot| &snapshot.clients),
                spec.clients,
                &metrics.limits.clients,
            ),
            limits: spec.limits,
            edge: Arc::new(EdgeSettings::next(
                previous.map(|snapshot| &*snapshot.edge),
                spec.edge,
            )),
            metrics_on_listen: spec.metrics_on_listen,
            settings: Arc::new(DecisionSettings {
                decision_headers: spec.decision_headers,
                policy_headers: spec.policy_headers.into(),
                record: spec.record,
                traces: spec.traces,
                events: previous.map_or_else(
                    || EventHub::new(metrics.observe.events.clone()),
                    |previous| Arc::clone(&previous.settings.events),
                ),
            }),
            metrics: metrics.clone(),
        }
    }
}

/// Returns the dialect detection of a pool that names no dialect. Earlier results are kept while it names none.
fn detection(pd: Option<PdSpec>, before: Option<&Arc<PoolState>>) -> Option<Arc<Detection>> {
    let is_detected = pd.is_some_and(|pd| pd.dialect.is_none());
    let kept = before.and_then(|before| before.pd.as_ref()?.detection.clone());
    is_detected.then(|| kept.unwrap_or_default())
}

fn plan_routes(routes: Vec<RouteSpec>, pools: &[PoolSpec]) -> Result<Vec<RoutePlan>, SnapshotError> {
    let names: Vec<&str> = pools.iter().map(|pool| &*pool.pool.name).collect();
    let plans = routes.into_iter().enumerate().map(|(at, route)| {
        RoutePlan::new(route, &names).map_err(|source| SnapshotError::Route {
            number: at + 1,
            source,
        })
    });
    plans.collect()
}

impl PoolPlan {
    fn build(
        self,
        before: Option<&Arc<PoolState>>,
        links: &[Arc<WorkerHandle>],
        limits: RequestLimits,
        metrics: &ProxyMetrics,
    ) -> PoolState {
        let Self {
            spec,
            members,
            detection,
        } = self;
        let name = spec.pool.name;
        let members = members.into_iter().map(|member| Member {
            worker: member.worker,
            link: Arc::clone(&links[member.link]),
            bootstrap: member.bootstrap,
        });
        let members: Box<[Member]> = members.collect();
        let queue = before.map(|before| Arc::clone(&before.queue.controller));
        let workers = WorkerPool {
            version: FleetVersion::unique(),
            catalog: ModelCatalog::new(&members, spec.adapters, spec.model_list.is_some()),
            model_list: spec.model_list,
            members,
            authorization: spec.authorization,
            connections: spec.connections,
            checks: CheckRules {
                health: spec.health,
                scrape: spec.scrape,
            },
            knowledge: before.map_or_else(Arc::default, |before| Arc::clone(&before.workers.knowledge)),
            name: name.clone(),
        };
        PoolState {
            queue: PoolQueue {
                controller: queue
                    .unwrap_or_else(|| AdmissionController::new(metrics.limits.admission.pool(&name))),
                limit: spec.queue_limit,
                timeout: spec.queue_timeout,
                admission: spec.admission.map(Admission::new),
            },
            metrics: metrics.pool(&name),
            prompts: PromptRules {
                tokens: spec.tokens,
                expectation: spec.expectation,
            },
            keep_alive: spec.keep_alive.map(|every| KeepAlive {
                every,
                comments: metrics.limits.admission.comments(&name),
            }),
            bodies: BodyRules {
                accept_handover: spec.accept_handover,
                isolate_prefixes: spec.isolate_prefixes,
            },
            pd: spec.pd.map(|spec| PdPool {
                spec,
                metrics: metrics.dispatch.splits.pool(&name),
                detection,
            }),
            retries: PoolRetries {
                spec: spec.retries,
                budget: before.map_or_else(Arc::default, |before| Arc::clone(&before.retries.budget)),
            },
            limits: spec.timeouts.over(limits),
            current: before.map_or_else(Arc::default, |before| Arc::clone(&before.current)),
            workers: Arc::new(workers),
        }
    }
}

impl LinkPlan {
    fn build(self, metrics: &ProxyMetrics) -> Arc<WorkerHandle> {
        match self {
            Self::Kept(link) => link,
            Self::New(worker, upstream) => Arc::new(WorkerHandle::new(
                &worker,
                *upstream,
                metrics.fleet.worker(&worker.spec().name),
            )),
        }
    }
}

/// Dialect of a pool whose requests may be split.
#[derive(Debug, Clone, Copy)]
struct PoolDialect {
    /// `None` while unknown.
    known: Option<Dialect>,
    /// Set if the configuration names none.
    is_detected: bool,
}

/// Workers of a plan, and the state that they keep from the snapshot before.
struct Workers<'a> {
    kept: HashMap<WorkerId, Arc<WorkerHandle>>,
    bootstraps: HashMap<WorkerId, &'a Arc<Bootstrap>>,
    links: Vec<LinkPlan>,
    /// Index in `links`.
    places: HashMap<WorkerId, usize>,
}

impl<'a> Workers<'a> {
    fn kept_from(previous: Option<&'a Snapshot>) -> Self {
        let members = || previous.into_iter().flat_map(Snapshot::members);
        Self {
            kept: members()
                .map(|member| (member.worker.id(), Arc::clone(&member.link)))
                .collect(),
            bootstraps: members()
                .filter_map(|member| Some((member.worker.id(), member.bootstrap.as_ref()?)))
                .collect(),
            links: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Builds the members of a pool. `dialect`: `None` where nothing is split.
    fn members(
        &mut self,
        pool: &Pool,
        dialect: Option<PoolDialect>,
    ) -> Result<Vec<MemberPlan>, SnapshotError> {
        let member = |worker: &Arc<Worker>| {
            let unusable = |source| SnapshotError::Worker {
                worker: worker.spec().name.clone(),
                source,
            };
            let before = self.bootstraps.get(&worker.id()).copied();
            Ok(MemberPlan {
                link: self.link(worker).map_err(unusable)?,
                bootstrap: bootstrap(worker, dialect, before).map_err(unusable)?,
                worker: Arc::clone(worker),
            })
        };
        pool.workers.iter().map(member).collect()
    }

    /// Returns the index of a worker's link, which it shares with every pool that has the worker.
    fn link(&mut self, worker: &Arc<Worker>) -> Result<usize, UrlError> {
        if let Some(place) = self.places.get(&worker.id()) {
            return Ok(*place);
        }
        let link = match self.kept.remove(&worker.id()) {
            Some(link) => LinkPlan::Kept(link),
            None => {
                let upstream = ConnectionPool::new(&worker.spec().url)?;
                LinkPlan::New(Arc::clone(worker), Box::new(upstream))
            }
        };
        self.links.push(link);
        let place = self.links.len() - 1;
        self.places.insert(worker.id(), place);
        Ok(place)
    }
}

/// Returns a prefill worker's bootstrap server. The present one is kept while its address stays.
fn bootstrap(
    worker: &Worker,
    dialect: Option<PoolDialect>,
    before: Option<&Arc<Bootstrap>>,
) -> Result<Option<Arc<Bootstrap>>, UrlError> {
    let spec = worker.spec();
    let (Some(dialect), Some(url), Role::Prefill) = (dialect, &spec.bootstrap, spec.role) else {
        return Ok(None);
    };
    let has_ids = dialect.known == Some(Dialect::Mooncake);
    let needs_port = dialect.is_detected && dialect.known == Some(Dialect::Sglang);
    let is_same =
        |before: &&Arc<Bootstrap>| before.is(url, has_ids) && before.port().is_valid_for(needs_port);
    if let Some(before) = before.filter(is_same) {
        return Ok(Some(Arc::clone(before)));
    }
    let fresh = Bootstrap::new(url, has_ids)?;
    fresh.port().need(needs_port);
    Ok(Some(Arc::new(fresh)))
}
