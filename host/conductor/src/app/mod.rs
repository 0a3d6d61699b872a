//! Composition root: wires all parts of a router.
//!
//! [`App::build`] constructs the parts in order and binds the sockets, so that every mistake shows at once and the
//! addresses are known. [`App::spawn`] serves clients and follows events.

mod caches;
mod load;
mod meters;
mod pages;
mod threads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use kv_feed::FeedError;
use kv_index::SharedPrefixIndex;
use policy_runtime::EngineError;
use prometheus_client::registry::Registry;
use proxy::{DrainOutcome, Proxy, ProxyParts, Readiness, ServeLimits, Snapshot, SnapshotCell};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub(crate) use self::caches::Caches;
use self::load::load;
use self::meters::Meters;
use self::pages::Pages;
use self::threads::Threads;
use crate::admin_access::AdminKey;
use crate::compose;
use crate::indexer::Indexing;
use crate::listeners::{ListenError, ServerListeners};
use crate::live_fleet::LiveFleet;
use crate::reload::{
    ActiveConfig, Live, Parts, Planner, RefusedConfig, RefusedPlan, ReloadCommand, Reloader, Steps,
};
use crate::status::Status;
use crate::tasks;
use conductor_tools::Exit;
use kv_plane::CheckedFeeds;
use local_files::{ConfigSource, ReadConfigError};
use logging::LogFilter;
use observability::error_chain;
use policy_store::{EngineOptions, MemoryWriter, PolicyLibrary};

/// Pause before a reload is sent again to a thread whose queue is full.
const BUSY: Duration = Duration::from_millis(50);

/// Router that is ready to run.
pub struct App {
    sockets: ServerListeners,
    proxy: Arc<Proxy>,
    readiness: Readiness,
    index: Arc<SharedPrefixIndex>,
    memory_writer: MemoryWriter,
    reloader: Reloader,
    pages: Pages,
    limits: ServeLimits,
    indexer: Option<Indexing>,
    /// Feeds to follow as soon as it serves.
    feeds: CheckedFeeds,
    reload: Arc<Notify>,
}

/// Options of a router that come from its process.
#[derive(Default)]
pub(crate) struct RuntimeOptions {
    /// Log filter, if a reload may change its level.
    pub(crate) log: Option<LogFilter>,
    /// Compilation of policies.
    pub(crate) engine: EngineOptions,
}

/// Error of a start.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The configuration cannot be read.
    #[error(transparent)]
    Read(#[from] ReadConfigError),
    /// The configuration is invalid.
    #[error("failed to use the configuration")]
    Config(#[source] RefusedConfig),
    /// The thread that loads the policies failed.
    #[error("failed to load the policies")]
    Load(#[source] tokio::task::JoinError),
    /// WebAssembly cannot be set up.
    #[error("failed to start the policy engine")]
    Engine(#[source] EngineError),
    /// The event feeds cannot be set up.
    #[error("failed to start the KV-event feeds")]
    Feeds(#[source] FeedError),
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
        Self::build_with(source, RuntimeOptions::default()).await
    }

    /// Builds a router with the options of its process.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) async fn build_with(
        source: ConfigSource,
        options: RuntimeOptions,
    ) -> Result<Self, BuildError> {
        let log = options.log.clone();
        let loaded = load(&source, options).await?;
        let (active, library) = (loaded.active, loaded.library);
        let config = &active.config;
        let mut registry = Registry::default();
        let meters = Meters::register(&mut registry);
        let caches = Caches::start(config, &mut registry)?;
        let parts = first_parts((&active, &library), &meters, (&source, &caches))?;
        let (sockets, listeners) = ServerListeners::bind(&config.server).await?;
        let indexer = caches.indexing(&active).await?;

        // Nothing fails from here on: what is started now changes files.
        let cell = Arc::new(SnapshotCell::new(parts.snapshot, &meters.proxy));
        suggest_tokenizers(&cell.load());
        let status = Status::default();
        let watched = (&cell, &status, &loaded.memory);
        meters.watch(&mut registry, watched, library.engine().clone());
        let fleet = Box::new(LiveFleet(Arc::clone(&cell)));
        let memory_writer = MemoryWriter::begin(loaded.memory, fleet);
        let (proxy, readiness) = request_path(&cell, &caches, &meters, registry);
        let live = Live {
            cell,
            metrics: meters.proxy,
            recorder: meters.recorder,
            discovery: Arc::clone(&caches.plane.discovery),
            admin_key: AdminKey::default(),
            indexer: indexer.as_ref().map(Indexing::door),
            listeners,
            log,
        };
        live.activate(&active, parts.watches, parts.record);
        let mut reloader = Reloader {
            source,
            library,
            steps: Steps::default(),
            live,
            status,
            metrics: meters.control,
            at_start: active.config.clone(),
            active,
        };
        reloader.report_start();
        Ok(Self {
            sockets,
            pages: Pages::new(&reloader, &caches, &proxy),
            proxy,
            readiness,
            index: caches.plane.index,
            memory_writer,
            limits: compose::serve_limits(&reloader.at_start),
            reloader,
            indexer,
            feeds: parts.feeds,
            reload: Arc::default(),
        })
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.sockets.addresses.0
    }

    /// Returns the address of the admin pages, if they are served.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.sockets.addresses.1
    }

    /// Returns the address of the indexer, if it is served.
    #[must_use]
    pub fn indexer_addr(&self) -> Option<SocketAddr> {
        self.indexer.as_ref().map(Indexing::address)
    }

    /// Returns the notification that makes the running router read its files.
    #[must_use]
    pub fn reload_request(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Serves in a task of its own until `shutdown` is cancelled and the drain is over.
    pub fn spawn(self, shutdown: CancellationToken) -> JoinHandle<Exit> {
        tasks::spawn("router", self.run(shutdown))
    }

    /// Returns the reloader, for tests that run reloads themselves, and the address of the admin pages, which are
    /// served until `stop` is cancelled.
    #[cfg(test)]
    pub(crate) fn into_reloader(self, stop: CancellationToken) -> (Reloader, SocketAddr) {
        self.reloader.live.discovery.apply(self.feeds);
        let (commands, _) = std::sync::mpsc::sync_channel(1);
        let address = self.sockets.addresses.1.expect("an admin listener");
        let admin = self.sockets.admin.expect("an admin listener");
        tasks::spawn("admin", self.pages.serve(admin, commands, stop));
        (self.reloader, address)
    }

    async fn run(self, shutdown: CancellationToken) -> Exit {
        let discovery = Arc::clone(&self.reloader.live.discovery);
        discovery.apply(self.feeds);
        let background = CancellationToken::new();
        let heavy = (
            Arc::clone(&discovery),
            Arc::clone(&self.index),
            Arc::clone(&self.proxy),
        );
        let of_index = (self.index, Arc::clone(&self.proxy));
        let threads = Threads::start((self.reloader, self.memory_writer), of_index, &background);
        let threads = match threads {
            Ok(threads) => threads,
            Err(error) => {
                error!("{}", error_chain(&error));
                return Exit::Failure;
            }
        };
        let commands = threads.commands.clone();
        tasks::spawn("discovery", discovery.run(background.clone()));
        tasks::spawn(
            "reload-requests",
            pass_on(self.reload, commands.clone(), background.clone()),
        );
        let knowledge = self.pages.knowledge();
        tasks::spawn("knowledge-log", knowledge.keep_log(background.clone()));
        let pages = self.pages.for_clients(&commands);
        let ServerListeners {
            clients,
            admin,
            addresses,
        } = self.sockets;
        if let Some(admin) = admin {
            tasks::spawn("admin", self.pages.serve(admin, commands, background.clone()));
        }
        if let Some(indexer) = self.indexer {
            let proxy = Arc::clone(&self.proxy);
            tasks::spawn("indexer", indexer.run(proxy, background.clone()));
        }
        self.readiness.mark_ready();
        let (listen, admin) = (addresses.0, addresses.1.map(|admin| admin.to_string()));
        info!(%listen, admin = admin.as_deref().unwrap_or("off"), "ready");
        let outcome = proxy::serve(clients, self.proxy, pages, shutdown, self.limits).await;
        background.cancel();
        threads.end().await;
        drop_in_background(heavy);
        ended(&outcome)
    }
}

/// Drops large values, such as an index of a million blocks, on a thread of its own: the process does not wait for it
/// to end.
fn drop_in_background(heavy: impl Send + 'static) {
    // Without a thread, it is freed here.
    let _ = std::thread::Builder::new()
        .name("drop".to_owned())
        .spawn(move || drop(heavy));
}

/// Plans the parts of the first configuration.
fn first_parts(
    (active, library): (&ActiveConfig, &PolicyLibrary),
    meters: &Meters,
    (source, caches): (&ConfigSource, &Caches),
) -> Result<Parts, BuildError> {
    let planner = Planner {
        steps: &Steps::default(),
        source,
        metrics: &meters.proxy,
        recorder: &meters.recorder,
        discovery: &caches.plane.discovery,
    };
    let parts = planner.plan(active, None, |name| library.versions(name, None));
    parts
        .map_err(RefusedPlan::into_reason)
        .map_err(BuildError::Config)
}

/// Logs the pools that would gain from a tokenizer.
fn suggest_tokenizers(snapshot: &Snapshot) {
    for pool in snapshot.pools_without_tokenizer() {
        info!(
            pool,
            "name a tokenizer in [models.NAME] to save a request to a worker for each prompt"
        );
    }
}

/// Returns the request path, and its readiness.
fn request_path(
    cell: &Arc<SnapshotCell>,
    caches: &Caches,
    meters: &Meters,
    registry: Registry,
) -> (Arc<Proxy>, Readiness) {
    let readiness = Readiness::default();
    let proxy = Proxy::new(ProxyParts {
        snapshots: Arc::clone(cell),
        index: Arc::clone(&caches.plane.index),
        live: Arc::clone(&caches.live),
        metrics: meters.proxy.clone(),
        registry: Arc::new(registry),
        readiness: readiness.clone(),
    });
    (proxy, readiness)
}

/// Sends every SIGHUP to the reload thread, which logs the outcome.
async fn pass_on(requests: Arc<Notify>, commands: SyncSender<ReloadCommand>, stop: CancellationToken) {
    let passing = async {
        loop {
            requests.notified().await;
            while let Err(TrySendError::Full(_)) = commands.try_send(ReloadCommand::Hangup) {
                tokio::time::sleep(BUSY).await;
            }
        }
    };
    tokio::select! {
        () = passing => {}
        () = stop.cancelled() => {}
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
