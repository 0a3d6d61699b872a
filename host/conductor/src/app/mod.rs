//! The composition root: the only place that knows how all parts fit together.
//!
//! `build` constructs everything in order and binds the sockets, so that the addresses are known and every mistake
//! shows at once; nothing serves or follows events until `spawn`.

mod caches;
mod load;
mod meters;
mod pages;
mod sockets;
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
pub use self::sockets::ListenError;
use self::sockets::Sockets;
pub(crate) use self::sockets::{Bound, Doors, listen};
use self::threads::Threads;
use crate::compose;
use crate::indexer::Indexing;
use crate::instances::AdminKey;
use crate::live_fleet::LiveFleet;
use crate::reload::{
    ActiveConfig, Live, Parts, Planner, RefusedConfig, RefusedPlan, ReloadCommand, Reloader, Steps,
};
use crate::status::{PoliciesReport, Status};
use crate::tasks;
use crate::telemetry::LogFilter;
use conductor_tools::Exit;
use kv_plane::CheckedFeeds;
use local_files::{ConfigSource, ReadConfigError};
use observability::error_chain;
use policy_store::{EngineOptions, MemoryWriter, PolicyLibrary};

/// Before the reload thread, whose queue is full, is sent a reload again.
const BUSY: Duration = Duration::from_millis(50);

/// A router that is ready to run.
pub struct App {
    sockets: Sockets,
    proxy: Arc<Proxy>,
    readiness: Readiness,
    index: Arc<SharedPrefixIndex>,
    memory_writer: MemoryWriter,
    reloader: Reloader,
    pages: Pages,
    limits: ServeLimits,
    indexer: Option<Indexing>,
    /// Followed as soon as it serves.
    feeds: CheckedFeeds,
    reload: Arc<Notify>,
}

/// Options of a router that come from its process.
#[derive(Default)]
pub(crate) struct RuntimeOptions {
    /// Log filter, if a reload may change its level.
    pub(crate) log: Option<LogFilter>,
    /// How policies are compiled.
    pub(crate) engine: EngineOptions,
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

    /// The same within a process of its own.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) async fn build_with(
        source: ConfigSource,
        options: RuntimeOptions,
    ) -> Result<Self, BuildError> {
        let log = options.log.clone();
        let loaded = load(&source, options).await?;
        let (active, mut library) = (loaded.active, loaded.library);
        let config = &active.config;
        let mut registry = Registry::default();
        let meters = Meters::register(&mut registry);
        let caches = Caches::start(config, &mut registry)?;
        let parts = first_parts((&active, &library), &meters, (&source, &caches))?;
        let (sockets, doors) = Sockets::bind(&config.server).await?;
        let indexer = caches.indexing(&active).await?;

        // Nothing fails from here on: what is started now changes files.
        meters.recorder.apply(parts.record);
        for watch in parts.watches {
            watch.register();
        }
        let cell = Arc::new(SnapshotCell::new(parts.snapshot, &meters.proxy));
        suggest_tokenizers(&cell.load());
        let folder = compose::policy_folder(config, &source);
        library.look_for_ignored_files(folder.as_deref(), |name| compose::takes_file(config, name));
        let reports = compose::policy_reports(config, &library, &meters.proxy);
        let reports = PoliciesReport::of(reports, library.ignored_files(), folder);
        let status = Status::started(&source, config, reports);
        let overrides = active.overlays.routes().report(&active.file, true);
        status.change_config(|report| report.overrides = overrides);
        let watched = (&cell, &status, &loaded.memory);
        meters.watch(&mut registry, watched, library.engine().clone());
        meters.control.in_force(active.generation);
        let fleet = Box::new(LiveFleet(Arc::clone(&cell)));
        let memory_writer = MemoryWriter::begin(loaded.memory, fleet);
        let (proxy, readiness) = request_path(&cell, &caches, &meters, registry);
        let admin_key = AdminKey::default();
        admin_key.set(active.resources.keys.admin.clone(), &config.server);
        let reloader = Reloader {
            source,
            library,
            steps: Steps::default(),
            live: Live {
                cell,
                metrics: meters.proxy,
                recorder: meters.recorder,
                discovery: Arc::clone(&caches.plane.discovery),
                admin_key,
                indexer: indexer.as_ref().map(Indexing::door),
                doors,
                log,
            },
            status,
            metrics: meters.control,
            at_start: config.clone(),
            active,
        };
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

    /// What a reload works on, for tests that run reloads themselves, and where the admin pages are; they are served until
    /// `stop` is cancelled.
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
        let Sockets {
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
        give_back(heavy);
        ended(&outcome)
    }
}

/// Drops what takes long to free, an index of a million blocks say, on a thread of its own: the end of the process does not wait for that.
fn give_back(heavy: impl Send + 'static) {
    // Where there is no thread to be had, it is freed here.
    let _ = std::thread::Builder::new()
        .name("give-back".to_owned())
        .spawn(move || drop(heavy));
}

/// The parts of what is active when the router starts.
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

/// Tells the operator which pools would gain from a tokenizer.
fn suggest_tokenizers(snapshot: &Snapshot) {
    for pool in snapshot.pools_without_tokenizer() {
        info!(
            pool,
            "name a tokenizer in [models.NAME] to save a request to a worker for each prompt"
        );
    }
}

/// What requests go through, and whether it is ready for them.
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

/// Passes every SIGHUP on to the reload thread, which logs the outcome.
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
