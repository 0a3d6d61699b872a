//! The composition root: the only place that knows how all parts fit together.
//!
//! `build` constructs everything in order and binds the sockets, so that the addresses are known and every mistake
//! shows at once; nothing serves or follows events until `spawn`.

mod sockets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use conductor_config::Config;
use kv_feed::{FeedError, KvFeeds};
use kv_index::{IndexLimits, SharedPrefixIndex};
use policy_runtime::EngineError;
use prometheus_client::registry::Registry;
use proxy::record::Recorder;
use proxy::{DrainOutcome, LiveFeeds, Proxy, ProxyMetrics, Readiness, ServeLimits, Snapshot, SnapshotCell};
use routing::{Fleet, Generation};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use self::sockets::ListenError;
use self::sockets::Sockets;
pub(crate) use self::sockets::{Doors, listen};
use crate::admin::Admin;
use crate::admin_policies::PolicyPages;
use crate::compiled::policy_engine;
use crate::compose;
use crate::config_source::{ConfigSource, ReadConfigError};
use crate::discovery::Discovery;
use crate::exit::Exit;
use crate::explain;
use crate::exposure;
use crate::feed_list::FeedList;
use crate::index_feed::IndexFeed;
use crate::indexer::{ApiKeyError, Indexing, RegisteredFeeds};
use crate::instances::{AdminKey, Instances, Listener};
use crate::keys::Keys;
use crate::metrics::{CacheCollector, ControlMetrics};
use crate::overlay::Overlays;
use crate::policy_library::{PolicyLibrary, chain};
use crate::policy_memory::{Keeping, MemoryCollector, PolicyMemory};
use crate::policy_metrics::PolicyCollector;
use crate::record;
use crate::reload::{self, Bell, InForce, RefusedConfig, Reloader, SetUpError};
use crate::status::Status;
use crate::status_page::StatusPage;
use crate::store_metrics::StoreCollector;
use crate::tasks;
use crate::telemetry::LogFilter;
use crate::tokenizers::Tokenizers;
use crate::trial_page::TrialPages;
use crate::upkeep::Upkeep;

/// A router that is ready to run.
pub struct App {
    sockets: Sockets,
    proxy: Arc<Proxy>,
    readiness: Readiness,
    index: Arc<SharedPrefixIndex>,
    discovery: Arc<Discovery>,
    keeping: Keeping,
    reloader: Reloader,
    pages: Admin,
    status_page: StatusPage,
    limits: ServeLimits,
    indexer: Option<Indexing>,
    reload: Arc<Notify>,
}

/// What a router has of its process.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// Where a reload may change the log level.
    pub(crate) log: Option<LogFilter>,
    /// The folder for compiled policies, where the configuration names none.
    pub(crate) compiled: Option<PathBuf>,
}

/// The router cannot start.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The configuration cannot be read.
    #[error(transparent)]
    Read(#[from] ReadConfigError),
    /// The configuration is not good.
    #[error("failed to use the configuration")]
    Config(#[source] RefusedConfig),
    /// Loading was broken off.
    #[error("failed to load the policies")]
    Load(#[source] tokio::task::JoinError),
    /// WebAssembly cannot be set up.
    #[error("failed to start the policy engine")]
    Engine(#[source] EngineError),
    /// The event feeds cannot be set up.
    #[error("failed to start the KV-event feeds")]
    Feeds(#[source] FeedError),
    /// The indexer's API key cannot be read.
    #[error("failed to set up the indexer")]
    Indexer(#[from] ApiKeyError),
    /// The request path refuses the fleet.
    #[error("failed to set up the request path")]
    Snapshot(#[source] SetUpError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl App {
    /// Builds a router from a configuration.
    ///
    /// # Errors
    /// [`BuildError`].
    pub async fn build(source: ConfigSource) -> Result<Self, BuildError> {
        Self::build_with(source, Surroundings::default()).await
    }

    /// The same within a process of its own.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) async fn build_with(
        source: ConfigSource,
        surroundings: Surroundings,
    ) -> Result<Self, BuildError> {
        let Surroundings { log, compiled } = surroundings;
        let Loaded {
            text,
            config,
            keys,
            library,
            memory,
        } = load(&source, compiled).await?;
        let mut registry = Registry::default();
        let proxy_metrics = ProxyMetrics::new(&mut registry);
        let metrics = ControlMetrics::register(&mut registry);
        let recorder = Recorder::new(&mut registry);
        record::apply(&recorder, &config, &source);
        let caches = Caches::start(&config, &mut registry)?;

        let (fleet, _) = Fleet::default().next(compose::worker_specs(&config));
        let generation = Generation(1);
        let component = |name: &str| library.versions(name, None);
        let (parts, own) = ((&config, &keys, &fleet), (&proxy_metrics, &recorder));
        let first = reload::snapshot(None, parts, component, generation, own);
        let cell = Arc::new(SnapshotCell::new(advised(first.map_err(BuildError::Snapshot)?)));
        proxy_metrics.watch(&mut registry, &cell);
        metrics.in_force(generation);
        let reports = compose::policy_reports(&config, &library, &proxy_metrics);
        let status = Status::started(&source, &config, reports);
        registry.register_collector(Box::new(PolicyCollector {
            status: status.clone(),
        }));
        MemoryCollector::register(&memory, &mut registry);

        let readiness = Readiness::default();
        let proxy = Proxy::new(proxy::ProxyParts {
            snapshots: Arc::clone(&cell),
            index: Arc::clone(&caches.index),
            live: Arc::clone(&caches.live),
            metrics: proxy_metrics.clone(),
            registry: Arc::new(registry),
            readiness: readiness.clone(),
        });
        let keeping = Keeping::begin(memory, Arc::clone(&cell));
        let (sockets, doors) = Sockets::bind(&config.server).await?;
        let follow = RegisteredFeeds {
            feeds: caches.list,
            ids: fleet.ids().clone(),
        };
        let indexer = Indexing::bind(&config.indexer, &source, (*caches.index).clone(), follow).await?;
        let admin_key = AdminKey::default();
        admin_key.set(keys.admin.clone(), config.server.admin_key_for_reads);
        let pages = Admin {
            status: status.clone(),
            cell: Arc::clone(&cell),
            feeds: Arc::clone(&caches.feeds),
            discovery: Arc::clone(&caches.discovery),
            proxy: Arc::clone(&proxy),
            key: admin_key.clone(),
        };
        let status_page = StatusPage {
            cell: Arc::clone(&cell),
            live: caches.live,
            status: status.clone(),
        };
        let reloader = Reloader {
            source,
            doors,
            library,
            discovery: Arc::clone(&caches.discovery),
            cell,
            status,
            metrics,
            proxy_metrics,
            recorder: Arc::clone(&recorder),
            log,
            admin_key,
            at_start: config.clone(),
            in_force: InForce {
                text,
                file: config.clone(),
                overlays: Overlays::default(),
                config,
                keys,
                fleet,
                generation,
            },
        };
        Ok(Self {
            sockets,
            proxy,
            readiness,
            index: caches.index,
            discovery: caches.discovery,
            keeping,
            limits: compose::serve_limits(&reloader.at_start),
            reloader,
            pages,
            status_page,
            indexer,
            reload: Arc::default(),
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.sockets.addresses.0
    }

    /// Where the admin pages are, if anywhere.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.sockets.addresses.1
    }

    /// Where the indexer is, if anywhere.
    #[must_use]
    pub fn indexer_addr(&self) -> Option<SocketAddr> {
        self.indexer.as_ref().map(Indexing::address)
    }

    /// Asks the running router to look at its files now.
    #[must_use]
    pub fn reload_request(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Serves until `shutdown` is cancelled and the drain is over, in a task of its own.
    pub fn spawn(self, shutdown: CancellationToken) -> JoinHandle<Exit> {
        tasks::spawn("router", self.run(shutdown))
    }

    async fn run(self, shutdown: CancellationToken) -> Exit {
        let Self {
            sockets,
            proxy,
            readiness,
            index,
            discovery,
            keeping,
            reloader,
            pages,
            status_page,
            limits,
            indexer,
            reload,
        } = self;
        if let Err(error) = discovery.set(compose::feed_plan(
            &reloader.in_force.config,
            &reloader.in_force.fleet,
        )) {
            error!(error = chain(&error), "failed to follow the event feeds");
            return Exit::Failure;
        }
        let background = CancellationToken::new();
        let (key, recorder) = (reloader.admin_key.clone(), Arc::clone(&reloader.recorder));
        tasks::spawn("discovery", discovery.run(background.clone()));
        let (bell, reloading) = match reloader.spawn(background.clone()) {
            Ok(started) => started,
            Err(error) => {
                error!(error = chain(&error), "failed to start the reload thread");
                return Exit::Failure;
            }
        };
        tasks::spawn(
            "reload-requests",
            pass_on(reload, bell.clone(), background.clone()),
        );
        let (index, upheld) = (Arc::clone(&index), Arc::clone(&proxy));
        let upkeep = Upkeep::spawn(index, upheld, background.clone()).and_then(|upkeep| {
            let keeping = keeping.spawn()?;
            Ok((upkeep, keeping))
        });
        let (upkeep, keeping) = match upkeep {
            Ok(started) => started,
            Err(error) => {
                error!(
                    error = chain(&error),
                    "failed to start the upkeep of the index, or of what policies remember"
                );
                return Exit::Failure;
            }
        };
        let own_pages = |listener| {
            let (key, bell) = (key.clone(), bell.clone());
            let status_page = status_page.clone().pages(key.clone(), listener);
            let instances = Instances { key, bell, listener };
            status_page.merge(instances.pages())
        };
        if let Some(admin) = sockets.admin {
            let policies = PolicyPages {
                key: key.clone(),
                bell: bell.clone(),
            };
            let trials = TrialPages {
                cell: Arc::clone(&status_page.cell),
                key: key.clone(),
            };
            let own = own_pages(Listener::Operators)
                .merge(policies.pages())
                .merge(trials.pages())
                .merge(explain::pages(Arc::clone(&recorder)));
            tasks::spawn("admin", pages.serve(admin, own, bell.clone(), background.clone()));
        }
        if let Some(indexer) = indexer {
            tasks::spawn("indexer", indexer.run(background.clone()));
        }
        readiness.mark_ready();
        let (listen, admin) = sockets.addresses;
        let admin = admin.map(|admin| admin.to_string());
        info!(%listen, admin = admin.as_deref().unwrap_or("off"), "ready");
        let outcome = proxy::serve(
            sockets.clients,
            proxy,
            own_pages(Listener::Clients),
            shutdown,
            limits,
        )
        .await;
        background.cancel();
        // Wakes the thread, which then sees that it is over; a full channel has woken it already.
        let _ = bell.try_send(Bell::Changed);
        upkeep.thread().unpark();
        let joined = tokio::task::spawn_blocking(move || {
            recorder.close();
            reloading.join().and(upkeep.join()).and(keeping.end())
        });
        if !matches!(joined.await, Ok(Ok(()))) {
            error!("a background thread had panicked; its message is on stderr");
        }
        ended(&outcome)
    }
}

fn ended(outcome: &DrainOutcome) -> Exit {
    if outcome.cut == 0 {
        info!("drained");
        Exit::Success
    } else {
        warn!(
            cut = outcome.cut,
            "the drain deadline passed with connections still busy"
        );
        Exit::DrainCut
    }
}

/// What is read before anything is set up.
struct Loaded {
    text: String,
    config: Config,
    keys: Keys,
    library: PolicyLibrary,
    memory: Arc<PolicyMemory>,
}

/// Reads the configuration and loads its policies, off the threads that serve.
async fn load(source: &ConfigSource, compiled: Option<PathBuf>) -> Result<Loaded, BuildError> {
    let source = source.clone();
    let loaded = tokio::task::spawn_blocking(move || load_blocking(&source, compiled.as_deref())).await;
    loaded.map_err(BuildError::Load)?
}

fn load_blocking(source: &ConfigSource, compiled: Option<&Path>) -> Result<Loaded, BuildError> {
    let text = source.read()?;
    let parsed = reload::read(source, &text)
        .map_err(|mistakes| BuildError::Config(RefusedConfig::Invalid(mistakes)))?;
    reload::log_warnings(&parsed.warnings);
    let mut keys = Keys::read(None, &parsed.config, source)
        .map_err(|error| BuildError::Config(RefusedConfig::Key(error)))?;
    keys.tokenizers = Tokenizers::read(None, (&parsed.config, source, &text))
        .map_err(|problems| BuildError::Config(RefusedConfig::Tokenizers(problems)))?;
    for warning in exposure::warnings(&parsed.config, &keys) {
        warn!("{warning}");
    }
    let engine = policy_engine((&parsed.config, source), compiled).map_err(BuildError::Engine)?;
    let memory = PolicyMemory::new(compose::state_folder(&parsed.config, source));
    let memory = Arc::new(memory);
    let mut library = PolicyLibrary::new(engine, Arc::clone(&memory));
    let prepared = library.prepare_settled(|| compose::wanted_policies(&parsed.config, source));
    let unavailable = reload::unavailable_policies((&parsed.config, source, &text), &prepared);
    if !unavailable.is_empty() {
        return Err(BuildError::Config(RefusedConfig::Policies(unavailable)));
    }
    library.commit(prepared).log();
    Ok(Loaded {
        text,
        config: parsed.config,
        keys,
        library,
        memory,
    })
}

/// What is known of the workers' caches.
struct Caches {
    index: Arc<SharedPrefixIndex>,
    live: Arc<LiveFeeds>,
    feeds: Arc<KvFeeds>,
    list: Arc<FeedList>,
    discovery: Arc<Discovery>,
}

impl Caches {
    fn start(config: &Config, registry: &mut Registry) -> Result<Self, BuildError> {
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits {
            max_blocks: usize::try_from(config.index.max_blocks).unwrap_or(usize::MAX),
        }));
        let live = Arc::new(LiveFeeds::default());
        let sink = IndexFeed::new(Arc::clone(&index), Arc::clone(&live));
        let feeds = Arc::new(KvFeeds::start(Box::new(sink)).map_err(BuildError::Feeds)?);
        registry.register_collector(Box::new(CacheCollector {
            feeds: Arc::clone(&feeds),
            index: Arc::clone(&index),
        }));
        let list = Arc::new(FeedList::new(Arc::clone(&feeds)));
        let discovery = Discovery::new(Arc::clone(&list), Arc::clone(&index));
        let discovery = Arc::new(discovery);
        registry.register_collector(Box::new(StoreCollector {
            discovery: Arc::clone(&discovery),
        }));
        Ok(Self {
            discovery,
            list,
            index,
            live,
            feeds,
        })
    }
}

/// Rings the bell for every request to reload.
async fn pass_on(requests: Arc<Notify>, bell: SyncSender<Bell>, stop: CancellationToken) {
    loop {
        tokio::select! {
            // A full channel is rung already.
            () = requests.notified() => drop(bell.try_send(Bell::Changed)),
            () = stop.cancelled() => return,
        }
    }
}

/// Tells the operator what could be had besides.
fn advised(snapshot: Snapshot) -> Snapshot {
    for pool in snapshot.pools_without_tokenizer() {
        info!(
            pool,
            "name a tokenizer in [models.NAME] to save a request to a worker for each prompt"
        );
    }
    snapshot
}
