//! All pages of a router: on the operators' listener, and on the clients' those about the fleet.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use axum::Router;
use axum::http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::{self, from_fn_with_state};
use axum::response::Response;
use conductor_tools::simulate::SimulationJobs;
use kv_plane::{Discovery, IndexReporter};
use live_updates::{LiveHub, LiveSources, Sampler};
use local_files::ConfigSource;
use policy_runtime::PolicyEngine;
use proxy::{LiveFeeds, PagesListener, PagesSpec, Proxy, RebindableListener};
use replica_plane::{AgreedHandle, ReplicaReports};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use worker_sources::WorkerSources;

use crate::access::{AdminKey, Listener};
use crate::config_pages::ConfigPages;
use crate::control::{ConfigTexts, ReloadCommand, Status};
use crate::discovery_page::DiscoveryPage;
use crate::explain_page;
use crate::explore::{ExplorePages, ExploreTurns, SimulationPages, UploadPage};
use crate::feeds_page::FeedsPage;
use crate::index_page;
use crate::instances::Instances;
use crate::knowledge::KnowledgeSources;
use crate::live_pages::LivePages;
use crate::me_page::MePage;
use crate::policy_pages::PolicyPages;
use crate::reload_page::ReloadPage;
use crate::replica_page;
use crate::report_pages::ReportPages;
use crate::request_pages::RequestPages;
use crate::route_pages::RoutePages;
use crate::status_page::StatusPage;
use crate::trial_page::TrialPages;

/// Connections of operators at a time.
const CONNECTIONS: usize = 256;

/// Parts of a router that the pages show and change.
#[derive(Debug, Clone)]
pub struct PageSources {
    /// Admin key.
    pub key: AdminKey,
    /// Reports of the reload thread.
    pub status: Status,
    /// History of configuration texts.
    pub texts: ConfigTexts,
    /// Source of the configuration.
    pub source: ConfigSource,
    /// Engine that checks uploaded policies.
    pub engine: PolicyEngine,
    /// Sources of the live updates.
    pub live: LiveSources,
    /// Event feeds.
    pub feeds: FeedSources,
    /// Workers outside the file, and other routers.
    pub fleet: FleetSources,
    /// Request path.
    pub proxy: Arc<Proxy>,
    /// File of this program, which runs simulations. `None` where another program embeds the router.
    pub program: Option<PathBuf>,
}

/// Parts of the fleet that the configuration file does not name.
#[derive(Debug, Clone)]
pub struct FleetSources {
    /// Sources of workers.
    pub workers: Arc<WorkerSources>,
    /// Reports about other routers. `None` where the router serves alone.
    pub replicas: Option<(ReplicaReports, AgreedHandle)>,
}

/// Event feeds that the pages show.
#[derive(Debug, Clone)]
pub struct FeedSources {
    /// Workers whose event feeds are live.
    pub live: Arc<LiveFeeds>,
    /// Discovery of event feeds.
    pub discovery: Arc<Discovery>,
}

/// Pages of a router.
#[derive(Debug, Clone)]
pub struct AdminPages(PageSources);

impl AdminPages {
    /// Returns the pages over these sources.
    #[must_use]
    pub fn new(sources: PageSources) -> Self {
        Self(sources)
    }

    /// Returns the sources of warnings about missing cache knowledge.
    #[must_use]
    pub fn knowledge(&self) -> KnowledgeSources {
        let Self(sources) = self;
        KnowledgeSources {
            cell: Arc::clone(&sources.live.cell),
            discovery: Arc::clone(&sources.feeds.discovery),
            feeds: Arc::clone(&sources.live.feeds),
        }
    }

    /// Returns the task that samples the fleet for the hub's viewers.
    #[must_use]
    pub fn sampler(&self, hub: &Arc<LiveHub>) -> Sampler {
        Sampler::new(Arc::clone(hub), self.0.live.clone())
    }

    /// Returns the pages of the clients' listener. Their changes are sent as commands.
    pub fn for_clients(&self, commands: &SyncSender<ReloadCommand>) -> Router {
        self.of_the_fleet(Listener::Clients, commands)
    }

    /// Serves all of them to operators until `stop` is cancelled.
    pub async fn serve(
        self,
        listener: RebindableListener,
        commands: SyncSender<ReloadCommand>,
        hub: Arc<LiveHub>,
        stop: CancellationToken,
    ) {
        let Self(PageSources { proxy, key, .. }) = &self;
        let guard = from_fn_with_state(key.clone(), AdminKey::guard);
        let pages = self
            .of_the_fleet(Listener::Operators, &commands)
            .merge(self.that_show(hub))
            .merge(self.that_explore())
            .merge(self.that_change(&commands))
            .merge(proxy::status_pages(Arc::clone(proxy)))
            .merge(index_page::pages())
            .merge(dashboard::pages())
            .fallback(index_page::unknown)
            .layer(guard)
            .layer(middleware::map_response(no_store));
        let spec = PagesSpec {
            listener: PagesListener::Admin,
            key: "server.admin-listen",
            connections: CONNECTIONS,
        };
        proxy::serve_pages(listener, pages, spec, proxy, stop).await;
    }

    /// Returns the pages about the fleet, which both listeners have.
    fn of_the_fleet(&self, listener: Listener, commands: &SyncSender<ReloadCommand>) -> Router {
        let Self(sources) = self;
        let status = StatusPage {
            cell: Arc::clone(&sources.live.cell),
            live: Arc::clone(&sources.feeds.live),
            status: sources.status.clone(),
            knowledge: self.knowledge(),
        };
        let instances = Instances {
            key: sources.key.clone(),
            commands: commands.clone(),
            listener,
        };
        status
            .pages(sources.key.clone(), listener)
            .merge(instances.pages())
    }

    /// Returns the pages that are only read.
    fn that_show(&self, hub: Arc<LiveHub>) -> Router {
        let Self(sources) = self;
        let reports = ReportPages {
            status: sources.status.clone(),
            cell: Arc::clone(&sources.live.cell),
        };
        let feeds = FeedsPage {
            cell: Arc::clone(&sources.live.cell),
            feeds: Arc::clone(&sources.live.feeds),
            discovery: Arc::clone(&sources.feeds.discovery),
        };
        let discovery = DiscoveryPage {
            sources: Arc::clone(&sources.fleet.workers),
            status: sources.status.clone(),
        };
        let me = MePage {
            key: sources.key.clone(),
            status: sources.status.clone(),
        };
        let live = LivePages {
            hub,
            changes: sources.live.changes.clone(),
            key: sources.key.clone(),
        };
        let recorder = &sources.live.recorder;
        reports
            .pages()
            .merge(feeds.pages())
            .merge(discovery.pages())
            .merge(replica_page::pages(sources.fleet.replicas.clone()))
            .merge(me.pages())
            .merge(live.pages())
            .merge(RequestPages::new(Arc::clone(recorder)).pages())
            .merge(explain_page::pages(Arc::clone(recorder)))
    }

    /// Returns the pages that explore the index, recorded decisions and simulations.
    fn that_explore(&self) -> Router {
        let Self(sources) = self;
        let explore = ExplorePages {
            key: sources.key.clone(),
            cell: Arc::clone(&sources.live.cell),
            proxy: Arc::clone(&sources.proxy),
            index: Arc::new(IndexReporter::new(Arc::clone(&sources.live.index))),
            recorder: Arc::clone(&sources.live.recorder),
            status: sources.status.clone(),
            turns: ExploreTurns::default(),
        };
        let simulations = SimulationPages {
            key: sources.key.clone(),
            status: sources.status.clone(),
            jobs: SimulationJobs::default(),
            program: sources.program.clone(),
            turn: Arc::new(Semaphore::new(1)),
        };
        explore.pages().merge(simulations.pages())
    }

    /// Returns the pages that change the configuration, policies, routes and workers.
    fn that_change(&self, commands: &SyncSender<ReloadCommand>) -> Router {
        let Self(sources) = self;
        let (key, commands) = (&sources.key, || commands.clone());
        let reload = ReloadPage {
            key: key.clone(),
            commands: commands(),
        };
        let config = ConfigPages {
            key: key.clone(),
            commands: commands(),
            source: sources.source.clone(),
            texts: sources.texts.clone(),
        };
        let policies = PolicyPages {
            key: key.clone(),
            commands: commands(),
        };
        let routes = RoutePages {
            key: key.clone(),
            commands: commands(),
        };
        let trials = TrialPages {
            cell: Arc::clone(&sources.live.cell),
            key: key.clone(),
            changes: sources.live.changes.clone(),
        };
        let drains = Instances {
            key: key.clone(),
            commands: commands(),
            listener: Listener::Operators,
        };
        let (status, engine) = (sources.status.clone(), sources.engine.clone());
        let uploads = UploadPage::new(key.clone(), status, engine, commands());
        reload
            .pages()
            .merge(config.pages())
            .merge(policies.pages())
            .merge(routes.pages())
            .merge(trials.pages())
            .merge(drains.drain_pages())
            .merge(uploads.pages())
    }
}

/// Keeps a response out of caches, unless it has rules of its own, and from being read as another type than its own.
async fn no_store(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let caching = headers.entry(CACHE_CONTROL);
    caching.or_insert(HeaderValue::from_static("no-store"));
    let sniffing = headers.entry(X_CONTENT_TYPE_OPTIONS);
    sniffing.or_insert(HeaderValue::from_static("nosniff"));
    response
}
