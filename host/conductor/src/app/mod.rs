//! Composition root: wires all parts of a router.
//!
//! [`App::build`] constructs the parts in order and binds the sockets, so that every mistake shows at once and the
//! addresses are known. [`App::spawn`] serves clients and follows events.

mod build_error;
mod caches;
mod fill;
mod idle;
#[cfg(test)]
mod live_tests;
mod meters;
mod pages;
mod request_path;
mod sockets;
mod startup;
mod threads;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use admin_pages::AdminPages;
use admin_pages::control::ReloadCommand;
use conductor_tools::Exit;
use kv_index::SharedPrefixIndex;
use live_updates::LiveHub;
use local_files::ConfigSource;
use logging::LogFilter;
use observability::error_chain;
use policy_store::{EngineOptions, MemoryWriter};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use proxy::{DrainOutcome, Readiness};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use self::build_error::BuildError;
pub(crate) use self::caches::Caches;
use self::fill::StartFill;
use self::idle::IdleParts;
use self::meters::Meters;
use self::request_path::RequestPath;
use self::sockets::Sockets;
use self::startup::Startup;
use self::threads::{ThreadParts, Threads};
use crate::indexer::Indexing;
use crate::live_fleet::LiveFleet;
use crate::reload::{FilePlan, Reloader};
use crate::replicas::Replicas;
use crate::service_manager;
use crate::tasks;

/// Pause before a reload is sent again to a thread whose queue is full.
const BUSY: Duration = Duration::from_millis(50);
/// Longest wait, after the drain, for the report of the stop to the service manager.
const REPORT: Duration = Duration::from_secs(1);

/// Router that is ready to run.
pub struct App {
    sockets: Sockets,
    path: RequestPath,
    index: Arc<SharedPrefixIndex>,
    memory_writer: MemoryWriter,
    /// Exchange with other routers, if it is configured.
    replicas: Option<Replicas>,
    reloader: Box<Reloader>,
    pages: AdminPages,
    reload: Arc<Notify>,
    /// Delays of the runtime, measured while it runs.
    delays: Histogram,
    /// Longest wait for the fill of the index before it is ready.
    fill_within: Duration,
}

/// Options of a router that come from its process.
#[derive(Default)]
pub(crate) struct RuntimeOptions {
    /// Log filter, if a reload may change its level.
    pub(crate) log: Option<LogFilter>,
    /// Compilation of policies.
    pub(crate) engine: EngineOptions,
    /// File of this program, which runs simulations. `None` where another program embeds the router.
    pub(crate) program: Option<PathBuf>,
}

impl App {
    /// Builds a router from a configuration.
    ///
    /// # Errors
    /// [`BuildError`].
    pub async fn build(source: ConfigSource) -> Result<Self, BuildError> {
        let reading = source.clone();
        let text = tokio::task::spawn_blocking(move || reading.read()).await;
        let text = text.map_err(BuildError::Load)??;
        Self::build_with(source, text, RuntimeOptions::default()).await
    }

    /// Builds a router from the text of a source, with the options of its process.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) async fn build_with(
        source: ConfigSource,
        text: String,
        options: RuntimeOptions,
    ) -> Result<Self, BuildError> {
        // Parts that only a restart changes.
        let startup = Startup::read(&source, text, options.engine).await?;
        let (text, memory) = (startup.text.clone(), Arc::clone(&startup.memory));
        let fill_within = startup.config.index.fill_within;
        let mut registry = Registry::default();
        let meters = Meters::register(&mut registry, &startup.config.metrics);
        let caches = Caches::start(&startup.config, &mut registry)?;
        let idle = IdleParts {
            source,
            startup,
            meters: &meters,
            caches: &caches,
            log: options.log,
        };

        // A start is the first reload: a plan that only reads, and a commit that cannot fail.
        let (mut reloader, first) = plan_first(idle.reloader()?, text).await?;
        let sockets = Sockets::bind(&first.plan.active, &caches, &mut reloader.live)
            .await
            .map_err(|error| BuildError::of_address(error, &reloader.source))?;
        reloader.commit_start(*first);

        meters.watch(&mut registry, &reloader, &memory);
        let fleet = LiveFleet(Arc::clone(&reloader.live.cell));
        let memory_writer = MemoryWriter::begin(memory, Box::new(fleet));
        let readiness = Readiness::default();
        let replicas = Replicas::of(&reloader, &mut registry, &readiness, &caches.plane.peer_fill);
        reloader.agreed = replicas.as_ref().map(Replicas::follower);
        let reports = replicas
            .as_ref()
            .map(|replicas| (replicas.reports(), replicas.agreed()));
        let path = RequestPath::new(&reloader, &caches, registry, readiness);
        Ok(Self {
            pages: pages::admin_pages(&reloader, &caches, &path.proxy, options.program, reports),
            replicas,
            sockets,
            path,
            index: caches.plane.index,
            memory_writer,
            reloader,
            reload: Arc::default(),
            delays: meters.delays.clone(),
            fill_within,
        })
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.sockets.servers.addresses.clients
    }

    /// Returns the address of the admin pages, if they are served.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.sockets.servers.addresses.admin
    }

    /// Returns the address of the indexer, if it is served.
    #[must_use]
    pub fn indexer_addr(&self) -> Option<SocketAddr> {
        self.sockets.indexer.as_ref().map(Indexing::address)
    }

    /// Returns the notification that makes the running router read its files.
    #[must_use]
    pub fn reload_request(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Returns the readiness of the router. `Readiness::end_drain` ends its drain.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.path.readiness.clone()
    }

    /// Serves in a task of its own until `shutdown` is cancelled and the drain is over.
    pub fn spawn(self, shutdown: CancellationToken) -> JoinHandle<Exit> {
        tasks::spawn("router", self.run(shutdown))
    }

    /// Returns the reloader, for tests that run reloads themselves, and the address of the admin pages, which are
    /// served until `stop` is cancelled.
    #[cfg(test)]
    pub(crate) fn into_reloader(self, stop: CancellationToken) -> (Reloader, SocketAddr) {
        let (commands, _) = std::sync::mpsc::sync_channel(1);
        let servers = self.sockets.servers;
        let address = servers.addresses.admin.expect("an admin listener");
        let admin = servers.admin.expect("an admin listener");
        let hub = LiveHub::new(stop.clone());
        tasks::spawn("admin", self.pages.serve(admin, commands, hub, stop));
        (*self.reloader, address)
    }

    async fn run(self, shutdown: CancellationToken) -> Exit {
        let (servers, indexer) = (self.sockets.servers, self.sockets.indexer);
        let RequestPath {
            proxy,
            readiness,
            limits,
        } = self.path;
        let discovery = Arc::clone(&self.reloader.live.discovery);
        let index = Arc::clone(&self.index);
        let background = CancellationToken::new();
        let agreed = self.replicas.as_ref().map(Replicas::start);
        let parts = ThreadParts {
            reloader: self.reloader,
            memory_writer: self.memory_writer,
            replicas: self.replicas,
            index: self.index,
            proxy: Arc::clone(&proxy),
        };
        let threads = match Threads::start(parts, &background) {
            Ok(threads) => threads,
            Err(error) => {
                error!("{}", error_chain(&error));
                return Exit::Failure;
            }
        };
        let (pages, commands) = (self.pages, threads.commands.clone());
        let requests = pass_on(self.reload, commands.clone(), background.clone());
        tasks::spawn(
            "runtime-delay",
            process_resources::measure_delay(self.delays, background.clone()),
        );
        tasks::spawn("discovery", Arc::clone(&discovery).run(background.clone()));
        tasks::spawn("reload-requests", requests);
        tasks::spawn("knowledge-log", pages.knowledge().keep_log(background.clone()));
        let hub = LiveHub::new(shutdown.clone());
        tasks::spawn("sampler", pages.sampler(&hub).run(background.clone()));
        let client_pages = pages.for_clients(&commands);
        if let Some(admin) = servers.admin {
            tasks::spawn("admin", pages.serve(admin, commands, hub, background.clone()));
        }
        if let Some(indexer) = indexer {
            tasks::spawn("indexer", indexer.run(Arc::clone(&proxy), background.clone()));
        }
        if let Some(agreed) = agreed {
            // Before the first request: a restarted router has lost the decisions that it followed. Connections wait.
            shutdown.run_until_cancelled(agreed.wait()).await;
        }
        let start = StartFill {
            discovery: Arc::clone(&discovery),
            readiness,
            within: self.fill_within,
            addresses: servers.addresses,
        };
        if !shutdown.is_cancelled() {
            start.begin(&background);
        }
        let life = report_to_manager(&shutdown, &background, limits.delay.saturating_add(limits.drain));
        let outcome = proxy::serve(
            servers.clients,
            Arc::clone(&proxy),
            client_pages,
            shutdown,
            limits,
        )
        .await;
        background.cancel();
        // A drain without requests ends before the stop is reported.
        drop(tokio::time::timeout(REPORT, life).await);
        threads.end().await;
        drop_in_background((discovery, index, proxy));
        ended(&outcome)
    }
}

/// Reports the start and the stop to the service manager. A drain longer than the manager's own limit extends it.
/// Returns the task of the reports.
fn report_to_manager(
    shutdown: &CancellationToken,
    background: &CancellationToken,
    drain: Duration,
) -> JoinHandle<()> {
    let life = tasks::spawn(
        "service-manager",
        service_manager::report_life(shutdown.clone(), drain),
    );
    let extension = service_manager::extend_stop(shutdown.clone(), drain);
    tasks::spawn(
        "stop-extension",
        background.clone().run_until_cancelled_owned(extension),
    );
    life
}

/// Plans the first configuration, off the threads that serve.
async fn plan_first(
    mut reloader: Box<Reloader>,
    text: String,
) -> Result<(Box<Reloader>, Box<FilePlan>), BuildError> {
    let plan = move || reloader.plan_start(text).map(|first| (reloader, Box::new(first)));
    let planned = tokio::task::spawn_blocking(plan).await;
    Ok(planned.map_err(BuildError::Load)??)
}

/// Drops large values, such as an index of a million blocks, on a thread of its own: the process does not wait for it
/// to end.
fn drop_in_background(heavy: impl Send + 'static) {
    // Without a thread, it is freed here.
    let _ = std::thread::Builder::new()
        .name("drop".to_owned())
        .spawn(move || drop(heavy));
}

/// Sends every SIGHUP to the reload thread, which logs the outcome, and reports the reload to the service manager. A
/// SIGHUP during a reload begins another one after it.
async fn pass_on(requests: Arc<Notify>, commands: SyncSender<ReloadCommand>, stop: CancellationToken) {
    let passing = async {
        loop {
            requests.notified().await;
            service_manager::report_reloading().await;
            let (logged, outcome_logged) = oneshot::channel();
            let mut command = ReloadCommand::Hangup(logged);
            while let Err(TrySendError::Full(refused)) = commands.try_send(command) {
                command = refused;
                tokio::time::sleep(BUSY).await;
            }
            // An error: the thread has ended, and the router stops.
            if outcome_logged.await.is_ok() {
                service_manager::report_reloaded().await;
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
        warn!(cut = outcome.cut, "the drain ended with connections still busy");
        Exit::DrainCut
    }
}
