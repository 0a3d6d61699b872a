//! The pages beside the request path: all of them for operators, on a listener of their own, and on the clients' those
//! about the fleet.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use axum::Router;
use conductor_tools::simulate::SimulationJobs;
use decision_log::Recorder;
use kv_plane::IndexReporter;
use live_updates::{LiveHub, LiveSources, Sampler};
use local_files::ConfigSource;
use policy_runtime::PolicyEngine;
use proxy::{Door, Proxy};
use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use crate::admin::Admin;
use crate::admin_access::Listener;
use crate::admin_config::ConfigPages;
use crate::admin_live::LivePages;
use crate::admin_me::MePage;
use crate::admin_policies::PolicyPages;
use crate::admin_requests::RequestPages;
use crate::admin_routes::RoutePages;
use crate::config_texts::ConfigTexts;
use crate::explain_page;
use crate::explore::{ExplorePages, ExploreTurns, SimulationPages, UploadPage};
use crate::instances::Instances;
use crate::knowledge::KnowledgeSources;
use crate::reload::{ReloadCommand, Reloader};
use crate::status_page::StatusPage;
use crate::trial_page::TrialPages;

/// Sources of the pages.
pub(super) struct Pages {
    admin: Admin,
    status: StatusPage,
    recorder: Arc<Recorder>,
    explore: ExplorePages,
    live: LiveSources,
    source: ConfigSource,
    texts: ConfigTexts,
    simulations: SimulationPages,
    engine: PolicyEngine,
}

impl Pages {
    pub(super) fn new(reloader: &Reloader, caches: &Caches, proxy: &Arc<Proxy>) -> Self {
        Self {
            admin: Admin {
                status: reloader.status.clone(),
                cell: Arc::clone(&reloader.live.cell),
                feeds: Arc::clone(&caches.plane.feeds),
                discovery: Arc::clone(&caches.plane.discovery),
                proxy: Arc::clone(proxy),
                key: reloader.live.admin_key.clone(),
            },
            status: StatusPage {
                cell: Arc::clone(&reloader.live.cell),
                live: Arc::clone(&caches.live),
                status: reloader.status.clone(),
                knowledge: caches.knowledge(&reloader.live.cell),
            },
            recorder: Arc::clone(&reloader.live.recorder),
            live: LiveSources {
                cell: Arc::clone(&reloader.live.cell),
                feeds: Arc::clone(&caches.plane.feeds),
                index: Arc::clone(&caches.plane.index),
                recorder: Arc::clone(&reloader.live.recorder),
                changes: reloader.journal.log().clone(),
            },
            source: reloader.source.clone(),
            texts: reloader.journal.texts().clone(),
            explore: ExplorePages {
                key: reloader.live.admin_key.clone(),
                cell: Arc::clone(&reloader.live.cell),
                proxy: Arc::clone(proxy),
                index: Arc::new(IndexReporter::new(Arc::clone(&caches.plane.index))),
                recorder: Arc::clone(&reloader.live.recorder),
                status: reloader.status.clone(),
                turns: ExploreTurns::default(),
            },
            simulations: SimulationPages {
                key: reloader.live.admin_key.clone(),
                status: reloader.status.clone(),
                jobs: SimulationJobs::default(),
                program: None,
            },
            engine: reloader.library.engine().clone(),
        }
    }

    /// Sets the file of this program, which runs simulations.
    pub(super) fn with_program(mut self, program: Option<PathBuf>) -> Self {
        self.simulations.program = program;
        self
    }

    /// Returns the sources of warnings about missing cache knowledge.
    pub(super) fn knowledge(&self) -> KnowledgeSources {
        self.status.knowledge.clone()
    }

    /// Returns the task that samples the fleet.
    pub(super) fn sampler(&self, hub: &Arc<LiveHub>) -> Sampler {
        Sampler::new(Arc::clone(hub), self.live.clone())
    }

    /// Returns the pages of the clients' listener. Their changes are sent as commands.
    pub(super) fn for_clients(&self, commands: &SyncSender<ReloadCommand>) -> Router {
        self.of_the_fleet(Listener::Clients, commands)
    }

    /// Serves all of them to operators until `stop` is cancelled.
    pub(super) async fn serve(
        self,
        door: Door,
        commands: SyncSender<ReloadCommand>,
        hub: Arc<LiveHub>,
        stop: CancellationToken,
    ) {
        let live = LivePages {
            hub,
            changes: self.live.changes.clone(),
            key: self.admin.key.clone(),
        };
        let policies = PolicyPages {
            key: self.admin.key.clone(),
            commands: commands.clone(),
        };
        let routes = RoutePages {
            key: self.admin.key.clone(),
            commands: commands.clone(),
        };
        let uploads = UploadPage::new(
            self.admin.key.clone(),
            self.admin.status.clone(),
            self.engine.clone(),
            commands.clone(),
        );
        let trials = TrialPages {
            cell: Arc::clone(&self.admin.cell),
            key: self.admin.key.clone(),
            changes: self.live.changes.clone(),
        };
        let me = MePage {
            key: self.admin.key.clone(),
            status: self.admin.status.clone(),
        };
        let drains = Instances {
            key: self.admin.key.clone(),
            commands: commands.clone(),
            listener: Listener::Operators,
        };
        let config = ConfigPages {
            key: self.admin.key.clone(),
            commands: commands.clone(),
            source: self.source.clone(),
            texts: self.texts.clone(),
        };
        let own = self
            .of_the_fleet(Listener::Operators, &commands)
            .merge(policies.pages())
            .merge(routes.pages())
            .merge(trials.pages())
            .merge(drains.drain_pages())
            .merge(me.pages())
            .merge(config.pages())
            .merge(live.pages())
            .merge(RequestPages::new(Arc::clone(&self.recorder)).pages())
            .merge(explain_page::pages(self.recorder))
            .merge(self.explore.pages())
            .merge(self.simulations.pages())
            .merge(uploads.pages());
        self.admin.serve(door, own, commands, stop).await;
    }

    fn of_the_fleet(&self, listener: Listener, commands: &SyncSender<ReloadCommand>) -> Router {
        let (key, commands) = (self.admin.key.clone(), commands.clone());
        let status = self.status.clone().pages(key.clone(), listener);
        let instances = Instances {
            key,
            commands,
            listener,
        };
        status.merge(instances.pages())
    }
}
