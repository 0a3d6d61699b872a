//! Test router on a port of its own. A test states its difference from the default: a pool `main` whose workers take
//! everything, with the first-candidate policy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kv_index::{IndexLimits, SharedPrefixIndex};
use prometheus_client::registry::Registry;
use proxy::ModelsSpec;
use proxy::record::{RecordSpec, Recorder};
use proxy::{
    AdapterSpec, AdmissionSpec, Authorization, CanarySpec, ClientSpec, ConnectionsSpec, DrainOutcome,
    EdgeSpec, Expectation, HealthSpec, LiveFeeds, ModelListSpec, Objectives, PdSpec, PoolSpec, PoolTimeouts,
    Proxy, ProxyMetrics, ProxyParts, Readiness, RebindableListener, RequestLimits, RetrySpec, RouteSpec,
    ScrapeSpec, ServeLimits, ShadowSpec, Snapshot, SnapshotCell, SnapshotPlan, SnapshotSpec, StopRule,
    TokenSource, TrialSpec,
};
use routing::{
    Dialect, Fleet, Generation, Policy, PolicyVersion, PolicyVersions, Pool, Role, RunNumber, Worker,
    WorkerId, WorkerSpec,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::policy::Scripted;
use crate::{HOUR, eventually};

#[derive(Clone)]
pub(crate) struct Builder {
    workers: Vec<WorkerSpec>,
    /// Names of the workers of the pool `spare`, which no route names. The others are of the pool `main`.
    pub(crate) spare: Vec<&'static str>,
    policy: Arc<dyn Policy>,
    pub(crate) prefill_policy: Option<Arc<dyn Policy>>,
    pub(crate) decode_policy: Option<Arc<dyn Policy>>,
    /// Canaries with their shares of 10,000.
    pub(crate) canaries: Vec<(Arc<dyn Policy>, u32)>,
    pub(crate) rule: StopRule,
    /// Shadows, called for every request.
    pub(crate) shadows: Vec<Arc<dyn Policy>>,
    /// Id of the shadows' version.
    pub(crate) shadow_version: &'static str,
    pub(crate) accept_handover: bool,
    pub(crate) isolate_prefixes: bool,
    pub(crate) pd: Option<PdSpec>,
    pub(crate) health: HealthSpec,
    pub(crate) scrape: Option<ScrapeSpec>,
    pub(crate) model_list: Option<ModelListSpec>,
    pub(crate) adapters: Vec<AdapterSpec>,
    pub(crate) retries: RetrySpec,
    pub(crate) timeouts: PoolTimeouts,
    pub(crate) authorization: Authorization,
    pub(crate) models: Vec<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) tokens: TokenSource,
    pub(crate) models_spec: ModelsSpec,
    pub(crate) expectation: Expectation,
    pub(crate) queue_limit: usize,
    pub(crate) queue_timeout: Duration,
    pub(crate) admission: Option<AdmissionSpec>,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) objectives: Objectives,
    pub(crate) limits: RequestLimits,
    pub(crate) record: RecordSpec,
    pub(crate) decision_headers: bool,
    pub(crate) clients: Vec<ClientSpec>,
    pub(crate) edge: EdgeSpec,
    pub(crate) connections: ConnectionsSpec,
    pub(crate) delay: Duration,
    pub(crate) drain: Duration,
    pub(crate) max_connections: usize,
}

/// Change of a router's configuration that is made later.
pub(crate) type LaterChange = Box<dyn FnOnce() + Send>;

pub(crate) struct Router {
    pub(crate) address: SocketAddr,
    pub(crate) index: Arc<SharedPrefixIndex>,
    pub(crate) feeds: Arc<LiveFeeds>,
    pub(crate) readiness: Readiness,
    pub(crate) proxy: Arc<Proxy>,
    cell: Arc<SnapshotCell>,
    fleet: Fleet,
    registry: Arc<Registry>,
    shutdown: CancellationToken,
    server: JoinSet<DrainOutcome>,
}

pub(crate) fn router() -> Builder {
    Builder {
        workers: vec![],
        spare: vec![],
        policy: Scripted::first(&[], &[]),
        prefill_policy: None,
        decode_policy: None,
        canaries: vec![],
        rule: StopRule::default(),
        shadows: vec![],
        shadow_version: "native",
        accept_handover: false,
        isolate_prefixes: false,
        pd: None,
        // A test of the return of an ejected worker shortens it.
        health: HealthSpec {
            base_ejection_time: HOUR,
            max_ejection_time: HOUR,
            ..HealthSpec::default()
        },
        scrape: None,
        model_list: None,
        adapters: vec![],
        retries: RetrySpec::default(),
        timeouts: PoolTimeouts::default(),
        authorization: Authorization::Pass,
        models: vec![],
        headers: vec![],
        tokens: TokenSource::Off,
        models_spec: ModelsSpec::default(),
        expectation: Expectation::default(),
        queue_limit: 16,
        queue_timeout: Duration::from_secs(10),
        admission: None,
        keep_alive: None,
        objectives: Objectives::default(),
        limits: RequestLimits {
            body_bytes: 1 << 20,
            connect_timeout: HOUR,
            first_byte_timeout: HOUR,
            idle_timeout: HOUR,
            first_token_timeout: None,
            request_timeout: None,
            attempts: 3,
        },
        record: of_run(RunNumber::default()),
        decision_headers: true,
        clients: vec![],
        edge: EdgeSpec::default(),
        connections: ConnectionsSpec::default(),
        delay: Duration::ZERO,
        drain: HOUR,
        max_connections: 1_000,
    }
}

/// Creates a configuration that records nothing, for this run number.
pub(crate) fn of_run(run: RunNumber) -> RecordSpec {
    RecordSpec::nothing(Recorder::of_run(&mut Registry::default(), run))
}

/// Creates a plain worker.
pub(crate) fn spec(role: Role, name: &str, url: &str) -> WorkerSpec {
    WorkerSpec {
        role,
        ..WorkerSpec::mixed(name, url)
    }
}

impl Builder {
    pub(crate) fn worker(self, name: &str, url: &str) -> Self {
        self.serving(name, url, &[])
    }

    pub(crate) fn serving(mut self, name: &str, url: &str, models: &[&str]) -> Self {
        let mut worker = spec(Role::Mixed, name, url);
        worker.models = models.iter().map(|&model| model.into()).collect();
        self.workers.push(worker);
        self
    }

    pub(crate) fn prefill(self, name: &str, url: &str) -> Self {
        self.specified(spec(Role::Prefill, name, url))
    }

    pub(crate) fn decode(self, name: &str, url: &str) -> Self {
        self.specified(spec(Role::Decode, name, url))
    }

    pub(crate) fn specified(mut self, worker: WorkerSpec) -> Self {
        self.workers.push(worker);
        self
    }

    /// Splits requests. Decode workers take whole requests if the dialect allows that.
    pub(crate) fn pd(mut self, dialect: Dialect) -> Self {
        self.pd = Some(PdSpec {
            dialect: Some(dialect),
            alone: dialect.decodes_alone(),
            connect_timeout: HOUR,
            prefill_timeout: HOUR,
            first_token_timeout: HOUR,
            idle_timeout: HOUR,
        });
        self
    }

    /// Changes the settings of split requests.
    pub(crate) fn with_pd(mut self, change: impl FnOnce(&mut PdSpec)) -> Self {
        change(self.pd.as_mut().unwrap());
        self
    }

    pub(crate) fn policy(mut self, policy: Arc<dyn Policy>) -> Self {
        self.policy = policy;
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn trials(&self) -> TrialSpec {
        let canary = |(policy, share): &(Arc<dyn Policy>, u32)| CanarySpec {
            policy: PolicyVersions::only(Arc::clone(policy)),
            share: *share,
        };
        let shadow = |policy: &Arc<dyn Policy>| {
            let version = PolicyVersion {
                policy: Arc::clone(policy),
                circuit: Arc::default(),
                id: self.shadow_version.into(),
            };
            ShadowSpec {
                name: policy.name().to_owned(),
                policy: Arc::new(PolicyVersions::new(version, [])),
            }
        };
        TrialSpec {
            canaries: self.canaries.iter().map(canary).collect(),
            rule: self.rule,
            shadows: self.shadows.iter().map(shadow).collect(),
            shadow_sample: 1.0,
        }
    }

    fn pool(&self, name: &str, workers: Vec<Arc<Worker>>) -> PoolSpec {
        PoolSpec {
            pool: Pool {
                name: name.into(),
                workers: workers.into(),
            },
            tokens: self.tokens,
            expectation: self.expectation,
            queue_limit: self.queue_limit,
            queue_timeout: self.queue_timeout,
            admission: self.admission.clone(),
            keep_alive: self.keep_alive,
            adapters: self.adapters.clone(),
            model_list: self.model_list.clone(),
            authorization: self.authorization.clone(),
            connections: self.connections.clone(),
            accept_handover: self.accept_handover,
            isolate_prefixes: self.isolate_prefixes,
            pd: self.pd,
            health: self.health.clone(),
            scrape: self.scrape.clone(),
            retries: self.retries.clone(),
            timeouts: self.timeouts,
        }
    }

    fn pools(&self, fleet: &Fleet) -> Vec<PoolSpec> {
        let workers = fleet.workers().iter().cloned();
        let is_spare = |worker: &Arc<Worker>| self.spare.contains(&&*worker.spec().name);
        let (spare, main): (Vec<_>, Vec<_>) = workers.partition(is_spare);
        let mut pools = vec![self.pool("main", main)];
        if !spare.is_empty() {
            pools.push(self.pool("spare", spare));
        }
        pools
    }

    fn spec(&self, fleet: &Fleet, generation: u64) -> SnapshotSpec {
        SnapshotSpec {
            generation: Generation(generation),
            pools: self.pools(fleet),
            routes: vec![RouteSpec {
                prefill_policy: self.prefill_policy.clone().map(PolicyVersions::only),
                decode_policy: self.decode_policy.clone().map(PolicyVersions::only),
                models: self.models.clone(),
                path: None,
                headers: self.headers.clone(),
                pool: "main".to_owned(),
                policy: PolicyVersions::only(Arc::clone(&self.policy)),
                trials: self.trials(),
                objectives: self.objectives,
            }],
            models: self.models_spec.clone(),
            limits: self.limits,
            record: self.record.clone(),
            traces: None,
            decision_headers: self.decision_headers,
            edge: self.edge.clone(),
            clients: self.clients.clone(),
            metrics_on_listen: true,
            policy_headers: vec!["x-shown".to_owned()],
        }
    }

    /// Starts the router, and waits until the first check of each worker has ended.
    pub(crate) async fn start(self) -> Router {
        let router = self.start_at_once().await;
        eventually("every worker was checked once", || router.has_checked_all()).await;
        router
    }

    /// Starts the router; its workers are pending.
    pub(crate) async fn start_at_once(self) -> Router {
        let mut registry = Registry::default();
        let metrics = ProxyMetrics::new(&mut registry);
        let (fleet, _) = Fleet::default().next(self.workers.clone());
        let first = SnapshotPlan::new(None, self.spec(&fleet, 1)).unwrap();
        let cell = Arc::new(SnapshotCell::new(first, &metrics));
        metrics.watch(&mut registry, &cell);
        let registry = Arc::new(registry);
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 1_000 }));
        let (feeds, readiness) = (Arc::<LiveFeeds>::default(), Readiness::default());
        let proxy = Proxy::new(ProxyParts {
            snapshots: Arc::clone(&cell),
            index: Arc::clone(&index),
            live: Arc::clone(&feeds),
            metrics,
            registry: Arc::clone(&registry),
            readiness: readiness.clone(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let mut server = JoinSet::new();
        let serving = proxy::serve(
            RebindableListener::new(listener).0,
            Arc::clone(&proxy),
            axum::Router::new(),
            shutdown.clone(),
            ServeLimits {
                delay: self.delay,
                drain: self.drain,
                connections: self.max_connections,
            },
        );
        server.spawn(serving);
        Router {
            address,
            index,
            feeds,
            readiness,
            proxy,
            cell,
            fleet,
            registry,
            shutdown,
            server,
        }
    }
}

impl Router {
    /// Returns `true` if the first check of each worker has ended.
    pub(crate) fn has_checked_all(&self) -> bool {
        let pools = self.cell.load().report();
        let mut workers = pools.iter().flat_map(|pool| &pool.workers);
        workers.all(|worker| worker.reason.is_checked)
    }

    /// Activates another configuration.
    pub(crate) fn change(&mut self, to: Builder) {
        let (fleet, _) = self.fleet.next(to.workers.clone());
        let before = self.cell.load();
        let spec = to.spec(&fleet, before.generation().0 + 1);
        self.cell.store(SnapshotPlan::new(Some(&before), spec).unwrap());
        self.fleet = fleet;
    }

    /// Returns a change to another configuration of the same workers, for a worker or a policy that makes it.
    pub(crate) fn later_change(&self, to: &Builder) -> LaterChange {
        let (fleet, _) = self.fleet.next(to.workers.clone());
        let before = self.cell.load();
        let spec = to.spec(&fleet, before.generation().0 + 1);
        let cell = Arc::clone(&self.cell);
        Box::new(move || cell.store(SnapshotPlan::new(Some(&before), spec).unwrap()))
    }

    /// Returns the active configuration.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.cell.load()
    }

    /// Returns the worker of that name.
    pub(crate) fn worker(&self, name: &str) -> &Worker {
        let mut workers = self.fleet.workers().iter();
        workers.find(|worker| &*worker.spec().name == name).unwrap()
    }

    pub(crate) fn id(&self, name: &str) -> WorkerId {
        self.worker(name).id()
    }

    /// Returns the requests in flight at a worker.
    pub(crate) fn in_flight(&self, name: &str) -> u32 {
        self.worker(name).load().read().requests
    }

    /// Returns the number of the pool's requests that ended with an outcome.
    pub(crate) fn outcomes(&self, outcome: &str) -> f64 {
        self.metric(&format!(
            r#"conductor_requests_total{{pool="main",outcome="{outcome}"}}"#
        ))
    }

    /// Returns a metric of the pool by its name without the prefix.
    pub(crate) fn pool_metric(&self, name: &str) -> f64 {
        self.metric(&format!(r#"conductor_{name}{{pool="main"}}"#))
    }

    /// Returns the number of times that the fallback decided for a policy: after a pass, after a fault, and while its
    /// circuits were open.
    pub(crate) fn fallbacks(&self, policy: &str) -> [f64; 3] {
        ["pass", "fault", "circuit-open"].map(|cause| {
            self.metric(&format!(
                r#"conductor_policy_fallbacks_total{{policy="{policy}",cause="{cause}"}}"#
            ))
        })
    }

    /// Returns a metric's value by its whole name, labels included; 0 if it is absent.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub(crate) fn shut_down(&self) {
        self.shutdown.cancel();
    }

    pub(crate) async fn ended(mut self) -> DrainOutcome {
        self.server.join_next().await.unwrap().unwrap()
    }
}
