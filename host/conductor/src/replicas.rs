//! Exchange with other routers: its wiring.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use conductor_config::{NamedFile, ReplicasConfig};
use kv_plane::{Discovery, PeerFill};
use local_files::ConfigSource;
use local_files::regular_file::warn_of_readers;
use prometheus_client::registry::Registry;
use proxy::{PoolShare, Readiness, SnapshotCell};
use replica_plane::{
    AgreedHandle, AgreedStart, AgreementMetrics, AgreementParts, AgreementTask, ElsewhereNews, Exchange,
    ExchangeMetrics, ExchangeParts, ExchangeSpec, FleetSource, IndexContents, IndexTransfer, ReplicaReports,
    SharedPool, TransferMetrics, TransferParts, UsageGroup, WantedFeed,
};
use replicas::{FeedKey, FillState, IndexFill, RefusalReason, RouterId, RouterState, TransferError};
use routing::{BudgetUse, HeldSummary, RunNumber, Worker, WorkerId, hash_mix};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::config_hash::ConfigHash;
use crate::reload::{AgreedFollower, Reloader};
use crate::replica_bus::{self, BusConnections, BusLogin, BusOptions};
use crate::replica_usage::{ClientGroup, TenantGroup};
use crate::shared_trials::ActiveTrials;

/// Exchange of a router that is to share its loads.
pub(crate) struct Replicas {
    parts: ExchangeParts<ActiveFleet>,
    agreement: AgreementParts<ActiveTrials>,
    transfer: TransferParts<ActiveIndex>,
    options: BusOptions,
}

/// The index, as other routers fill it at the start and are filled from it later.
#[derive(Debug)]
struct ActiveIndex(Arc<PeerFill>);

impl IndexContents for ActiveIndex {
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn close(&self) {
        self.0.close();
    }

    fn wanted(&self) -> Vec<WantedFeed> {
        let wanted = self.0.wanted().into_iter();
        let wanted = wanted.map(|wanted| WantedFeed {
            feed: wanted.feed,
            known_from: wanted.known_from,
        });
        wanted.collect()
    }

    fn settle(&self, feed: FeedKey) {
        self.0.settle(feed);
    }

    fn export(
        &self,
        feed: FeedKey,
        known_from: Option<u64>,
    ) -> oneshot::Receiver<Result<Vec<u8>, RefusalReason>> {
        self.0.export(feed, known_from)
    }

    fn seed(&self, feed: FeedKey, bytes: &[u8]) -> Result<oneshot::Receiver<bool>, TransferError> {
        self.0.seed(feed, bytes)
    }
}

/// The active fleet, as it is shared.
struct ActiveFleet {
    cell: Arc<SnapshotCell>,
    readiness: Readiness,
    config_hash: ConfigHash,
    discovery: Arc<Discovery>,
    usage_answered_after: Duration,
}

/// Pool of the active fleet.
struct ActivePool(PoolShare);

impl FleetSource for ActiveFleet {
    type Pool = ActivePool;

    fn generation(&self) -> u64 {
        self.cell.load().generation().0
    }

    fn pools(&self) -> Vec<ActivePool> {
        let shares = self.cell.load().pool_shares();
        shares.into_iter().map(ActivePool).collect()
    }

    fn usage_groups(&self) -> Vec<Box<dyn UsageGroup>> {
        let snapshot = self.cell.load();
        let clients: Box<dyn UsageGroup> = Box::new(ClientGroup::new(
            snapshot.client_share(),
            self.usage_answered_after,
        ));
        let pools = snapshot.pool_shares().into_iter();
        let tenants = pools.map(|pool| Box::new(TenantGroup::new(pool)) as Box<dyn UsageGroup>);
        std::iter::once(clients).chain(tenants).collect()
    }

    fn state(&self) -> RouterState {
        match self.readiness.objection() {
            None => RouterState::Ready,
            Some("draining") => RouterState::Draining,
            Some(_) => RouterState::Starting,
        }
    }

    fn fill(&self) -> IndexFill {
        let outcome = self.discovery.fill();
        let count = |feeds: usize| u32::try_from(feeds).unwrap_or(u32::MAX);
        IndexFill {
            state: match (outcome.is_over, outcome.unfilled) {
                (false, _) => FillState::Filling,
                (true, 0) => FillState::Filled,
                (true, _) => FillState::TimedOut,
            },
            unfilled: count(outcome.unfilled),
            incomplete: count(outcome.incomplete),
            from_routers: count(outcome.from_routers),
        }
    }

    fn config_hash(&self) -> String {
        self.config_hash.get()
    }
}

impl SharedPool for ActivePool {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn workers(&self) -> Vec<Arc<Worker>> {
        self.0.workers()
    }

    fn queued(&self) -> usize {
        self.0.queued()
    }

    fn summarize_waiters(&self, visit: &mut dyn FnMut(WorkerId, &HeldSummary)) {
        self.0.summarize_waiters(visit);
    }

    fn budget(&self) -> BudgetUse {
        self.0.budget()
    }

    fn set_elsewhere(&self, elsewhere: &ElsewhereNews<'_>) {
        let queued = usize::try_from(elsewhere.gauges.queued).unwrap_or(usize::MAX);
        self.0.set_elsewhere(queued, elsewhere.gauges.budget);
        for worker in elsewhere.freed {
            self.0.freed_elsewhere(*worker);
        }
    }
}

impl Replicas {
    /// Returns the exchange by the configuration of the start, with its metrics registered. `None` for a
    /// router that serves alone.
    pub(crate) fn of(
        reloader: &Reloader,
        registry: &mut Registry,
        readiness: &Readiness,
        index: &Arc<PeerFill>,
    ) -> Option<Self> {
        let config = reloader.at_start.replicas.clone()?;
        let RunNumber(run) = reloader.live.recorder.run();
        let router = RouterId(hash_mix(run));
        let name = config.name.clone().unwrap_or_else(|| router.to_string());
        let id = router.to_string();
        let reports = ReplicaReports::default();
        let spec = ExchangeSpec {
            fleet: config.fleet.clone(),
            name: name.clone(),
            share_every: config.share_every,
            dead_after: config.dead_after,
        };
        // The start waits for other routers.
        index.open();
        Some(Self {
            transfer: TransferParts {
                router,
                contents: ActiveIndex(Arc::clone(index)),
                reports: reports.clone(),
                metrics: Arc::new(TransferMetrics::register(registry)),
            },
            agreement: AgreementParts {
                handle: AgreedHandle::new(&id, &name),
                trials: ActiveTrials(Arc::clone(&reloader.live.cell)),
                metrics: Arc::new(AgreementMetrics::register(registry)),
            },
            options: options(&config, &reloader.source, &name),
            parts: ExchangeParts {
                router,
                source: ActiveFleet {
                    cell: Arc::clone(&reloader.live.cell),
                    readiness: readiness.clone(),
                    config_hash: reloader.live.config_hash.clone(),
                    discovery: Arc::clone(&reloader.live.discovery),
                    usage_answered_after: spec.usage_answered_after(),
                },
                spec,
                metrics: Arc::new(ExchangeMetrics::register(registry)),
                reports,
            },
        })
    }

    /// Returns the reports of the exchange.
    pub(crate) fn reports(&self) -> ReplicaReports {
        self.parts.reports.clone()
    }

    /// Returns the handle of the fleet's decisions.
    pub(crate) fn agreed(&self) -> AgreedHandle {
        self.agreement.handle.clone()
    }

    /// Returns the wait of the start for the fleet's decisions.
    pub(crate) fn start(&self) -> AgreedStart {
        AgreedStart::new(self.agreed(), Arc::clone(&self.agreement.metrics))
    }

    /// Returns the follower of the fleet's decisions, for the reload thread.
    pub(crate) fn follower(&self) -> AgreedFollower {
        AgreedFollower::new(self.agreed(), self.reports(), self.parts.spec.forget_after())
    }

    /// Starts the thread that exchanges loads, and agrees on decisions, until `stop` is cancelled.
    ///
    /// It has a runtime of its own: the exchange and its connections wake each other for each message, which on one
    /// thread disturbs no other.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn spawn(self, stop: CancellationToken) -> io::Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("replicas".into());
        let agreed = self.agreed();
        thread.spawn(move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                runtime.block_on(self.run(stop));
                // The lookup of a server's name may take longer than the stop.
                runtime.shutdown_background();
            }
            Err(error) => {
                error!("failed to start the exchange with other routers: {error}; this router serves alone");
                agreed.note_alone();
            }
        })
    }

    async fn run(self, stop: CancellationToken) {
        let started = replica_bus::start(self.options, self.parts.router).await;
        let Some(BusConnections { bus, store, direct }) = started else {
            self.transfer.contents.close();
            self.agreement.handle.note_alone();
            return;
        };
        let agreement = AgreementTask::new(self.agreement).run(store, stop.clone());
        let transfer = IndexTransfer::new(self.transfer).run(direct, stop.clone());
        let exchange = Exchange::new(self.parts).run(bus, stop);
        let (bus, (), ()) = tokio::join!(exchange, agreement, transfer);
        replica_bus::flush(bus).await;
    }
}

fn options(config: &ReplicasConfig, source: &ConfigSource, name: &str) -> BusOptions {
    let resolve = |file: &NamedFile| source.resolve(&file.path);
    let secret = |file: &NamedFile, what: &str| {
        let path = resolve(file);
        warn_of_readers(&path, what);
        path
    };
    let credentials = config.credentials.as_ref();
    BusOptions {
        servers: config.servers.clone(),
        fleet: config.fleet.clone(),
        name: format!("conductor {name}"),
        credentials: credentials.map(|file| secret(file, "`replicas.credentials`")),
        agreed_copies: usize::try_from(config.agreed_copies).unwrap_or(1),
        login: config.login.as_ref().map(|login| BusLogin {
            user: login.user.clone(),
            password_file: secret(&login.password_file, "`replicas.password-file`"),
        }),
        ca: config.ca.as_ref().map(resolve),
    }
}
