//! Discovery of event feeds: the configured ones, and those that workers report.
//!
//! A worker is queried over HTTP, with growing pauses, until it reports its event sources; and again when its feeds are
//! down, since it may have restarted with other ports. If a feed cannot check its silence itself, the worker's
//! `/metrics` are read. Requests are served independently of the answers: without a feed, policies see no cached
//! prefixes of a worker.

mod endpoint_trust;
mod silent_feeds;
mod source_client;
mod stores;
mod targets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use inference_api::{StoreStatus, cache_use};
use kv_feed::{FeedError, FeedSpec, FeedState, FeedStatus};
use kv_index::SharedPrefixIndex;
use routing::{Worker, WorkerId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use worker_client::Authorization;

pub use self::endpoint_trust::RefusedSource;
pub use self::endpoint_trust::trusted_sources;
use self::silent_feeds::SilentFeeds;
pub use self::source_client::{PageTls, SourceAnswer, SourceClient, SourceError};
use self::stores::Stores;
pub use self::stores::{StorePlan, StoreReport};
use self::targets::Targets;
pub use self::targets::{Publisher, Target, TargetReport};
use crate::feed_list::{FeedList, OwnFeeds};
use crate::index_fill::{FillOutcome, IndexFill, is_filling};
use crate::peer_fill::PeerFill;
use observability::error_chain;

/// Interval of the checks for due queries.
const TICK: Duration = Duration::from_secs(1);
/// Page with an engine's counters of computed tokens.
const METRICS: &str = "/metrics";
/// Page with the status of a Mooncake store.
const STORE_STATUS: &str = "/kv_events/status";
/// First pause between two checks of the fill at start; it doubles up to the last.
const FIRST_CHECK: Duration = Duration::from_millis(5);
const LAST_CHECK: Duration = Duration::from_millis(100);
/// Most concurrent queries.
const AT_ONCE: usize = 16;

/// Feeds of a configuration.
#[derive(Debug, Default)]
pub struct FeedPlan {
    /// Configured feeds.
    pub given: Vec<FeedSpec>,
    /// Workers to query for their feeds.
    pub targets: Vec<Target>,
    /// Stores that workers share.
    pub stores: Vec<StorePlan>,
    /// All workers of the fleet.
    pub workers: Vec<Arc<Worker>>,
    /// Keys for the workers' own pages.
    pub authorizations: HashMap<WorkerId, Authorization>,
    /// TLS settings for the workers' own pages.
    pub tls: HashMap<WorkerId, PageTls>,
}

/// Plan whose configured feeds can all be followed.
#[derive(Debug)]
pub struct CheckedFeeds(FeedPlan);

/// Discovery, which maintains the list of feeds.
#[derive(Debug)]
pub struct Discovery {
    feeds: Arc<FeedList>,
    index: Arc<SharedPrefixIndex>,
    state: Mutex<DiscoveryState>,
    changed: Notify,
    client: SourceClient,
    fill: IndexFill,
}

#[derive(Debug, Default)]
struct DiscoveryState {
    given: Vec<FeedSpec>,
    targets: Targets,
    workers: Vec<Arc<Worker>>,
    authorizations: HashMap<WorkerId, Authorization>,
    tls: HashMap<WorkerId, PageTls>,
    stores: Stores,
    silences: SilentFeeds,
}

impl DiscoveryState {
    fn is_empty(&self) -> bool {
        self.given.is_empty() && self.targets.is_empty() && self.stores.is_empty()
    }
}

impl Discovery {
    pub(crate) fn new(feeds: Arc<FeedList>, index: Arc<SharedPrefixIndex>, fill: IndexFill) -> Self {
        Self {
            feeds,
            index,
            state: Mutex::default(),
            changed: Notify::new(),
            client: SourceClient::new(),
            fill,
        }
    }

    /// Checks that the configured feeds of a plan can be followed. Nothing changes.
    ///
    /// Feeds that workers report do not count: engines would have the power to refuse every change of the router.
    ///
    /// # Errors
    /// [`FeedError`] for too many feeds.
    pub fn check(&self, plan: FeedPlan) -> Result<CheckedFeeds, FeedError> {
        self.feeds.check(plan.given.len() + plan.stores.len())?;
        Ok(CheckedFeeds(plan))
    }

    /// Follows a plan's feeds from now on; it cannot fail. Reports of a worker, also those since the check, stay known
    /// while the plan needs them.
    pub fn apply(&self, CheckedFeeds(plan): CheckedFeeds) {
        let now = Instant::now();
        let mut state = self.state();
        state.targets = state.targets.next(plan.targets, now);
        state.stores.set(plan.stores, now, || self.feeds.new_store());
        state.given = plan.given;
        state.workers.clone_from(&plan.workers);
        state.authorizations = plan.authorizations;
        state.tls = plan.tls;
        self.feeds.replace(OwnFeeds {
            engines: all(&state.given, &state.targets),
            stores: state.stores.specs(),
            workers: plan.workers,
        });
        self.bind_stores(&state);
        self.changed.notify_one();
    }

    /// Binds stores to workers. The index forgets a binding with a worker's last feed.
    fn bind_stores(&self, state: &DiscoveryState) {
        for (store, shards, workers) in state.stores.bindings() {
            self.index.bind_store(store, shards, workers);
        }
    }

    /// Returns a report on each store, with those registered at the indexer.
    pub fn stores(&self) -> Vec<StoreReport> {
        let feeds = self.feeds.store_status();
        self.state()
            .stores
            .report(feeds, |store| self.index.is_ambiguous(store))
    }

    /// Queries workers until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = self.keep_querying() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn keep_querying(&self) {
        loop {
            let answers = self.due().into_iter().map(|target| async move {
                let answer = self
                    .client
                    .event_sources(&target.url, &target.tls, &target.authorization)
                    .await;
                (target, answer)
            });
            let mut answers = stream::iter(answers).buffer_unordered(AT_ONCE);
            while let Some((target, answer)) = answers.next().await {
                self.learn(&target, answer);
            }
            self.look_at_silences().await;
            self.look_at_stores().await;
            if self.state().is_empty() {
                self.changed.notified().await;
            } else {
                // A change ends the pause.
                let _ = tokio::time::timeout(TICK, self.changed.notified()).await;
            }
        }
    }

    /// Queries the engines of silent feeds for their counters.
    async fn look_at_silences(&self) {
        let due = self
            .silent()
            .into_iter()
            .map(|(worker, url, tls, authorization)| async move {
                let page = self.client.get(&url, METRICS, &tls, &authorization).await;
                (worker, page.ok().flatten())
            });
        let mut pages = stream::iter(due).buffer_unordered(AT_ONCE);
        while let Some((worker, page)) = pages.next().await {
            let used = page.map(|page| cache_use(&String::from_utf8_lossy(&page)));
            let suspect =
                used.is_some_and(|ranks| self.state().silences.learn(worker, &ranks, Instant::now()));
            if suspect {
                self.feeds.mark_suspect(worker);
            }
        }
    }

    /// Queries the status of the stores.
    async fn look_at_stores(&self) {
        self.state().stores.watch(|store| self.index.is_ambiguous(store));
        let due = self.state().stores.due(Instant::now());
        let queries = due.into_iter().map(|(store, url)| async move {
            let (tls, key) = (PageTls::default(), Authorization::Drop);
            let page = self.client.get(&url, STORE_STATUS, &tls, &key).await;
            (store, page.ok().flatten())
        });
        let mut pages = stream::iter(queries).buffer_unordered(AT_ONCE);
        while let Some((store, page)) = pages.next().await {
            match page.as_deref().map(StoreStatus::parse) {
                Some(Ok(status)) => self.state().stores.learn(store, status, Instant::now()),
                Some(Err(error)) => debug!(
                    error = error_chain(&error),
                    "failed to query a store for its publisher"
                ),
                None => {}
            }
        }
    }

    fn silent(&self) -> Vec<(WorkerId, Box<str>, PageTls, Authorization)> {
        let feeds = self.feeds.status();
        let mut state = self.state();
        let workers = state.silences.due(&feeds, Instant::now());
        let url = |id: WorkerId| {
            let worker = state.workers.iter().find(|worker| worker.id() == id)?;
            let authorization = state.authorizations.get(&id).cloned();
            let authorization = authorization.unwrap_or(Authorization::Drop);
            let tls = state.tls.get(&id).cloned().unwrap_or_default();
            Some((id, worker.spec().url.clone(), tls, authorization))
        };
        workers.into_iter().filter_map(url).collect()
    }

    /// Returns the number of feeds whose replay is outstanding or whose contents are wanted from another router, and of
    /// workers that were not queried yet.
    pub fn unfilled(&self) -> usize {
        // Targets and settled feeds first: an answer and its feeds become known under one lock, and a settled feed has
        // its contents.
        let unqueried = self.state().targets.unqueried();
        let settled = self.fill.peers.settled();
        let engines = self.feeds.engines();
        let filling = engines
            .iter()
            .filter(|(_, feed)| is_filling(feed.state, &feed.reason, feed.replays));
        unqueried + filling.count() + PeerFill::wanted_among(&engines, settled.as_ref()).len()
    }

    /// Waits until the replays of all feeds, and other routers, have filled the index, for at most this time.
    pub async fn wait_filled(&self, within: Duration) -> FillOutcome {
        let deadline = Instant::now() + within;
        let mut pause = FIRST_CHECK;
        loop {
            let outcome = self.look_at_fill();
            let left = deadline.saturating_duration_since(Instant::now());
            if outcome.unfilled == 0 || left.is_zero() {
                return outcome;
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(LAST_CHECK);
        }
    }

    fn look_at_fill(&self) -> FillOutcome {
        let unfilled = self.unfilled();
        let is_incomplete = |feed: &FeedStatus| feed.state == FeedState::Live && !feed.complete;
        let feeds = self.feeds.status();
        let incomplete = feeds.iter().filter(|feed| is_incomplete(feed)).count();
        self.fill.progress.update(|outcome| {
            outcome.unfilled = unfilled;
            outcome.incomplete = incomplete;
            outcome.from_routers = self.fill.peers.filled();
        })
    }

    /// Returns the progress of the fill at start.
    pub fn fill(&self) -> FillOutcome {
        self.fill.progress.get()
    }

    /// Ends the fill at start: nothing is wanted from other routers any more.
    pub fn end_fill(&self) {
        self.fill.peers.close();
        self.fill.progress.update(|outcome| outcome.is_over = true);
    }

    /// Returns a report on each queried worker.
    pub fn report(&self) -> Vec<TargetReport> {
        self.state().targets.report(Instant::now())
    }

    fn due(&self) -> Vec<Target> {
        let feeds = self.feeds.status();
        let mut state = self.state();
        let now = Instant::now();
        state
            .targets
            .watch(feeds.iter().map(|feed| (feed.worker, feed.state)), now);
        state.targets.due(now)
    }

    fn learn(&self, target: &Target, answer: SourceAnswer) {
        let mut state = self.state();
        if !state.targets.learn(target, answer, Instant::now()) {
            return;
        }
        self.feeds.set(all(&state.given, &state.targets));
        self.bind_stores(&state);
    }

    fn state(&self) -> MutexGuard<'_, DiscoveryState> {
        // Every change is made at once; none can be left half-made by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn all(given: &[FeedSpec], targets: &Targets) -> Vec<FeedSpec> {
    given.iter().cloned().chain(targets.specs()).collect()
}

#[cfg(test)]
mod tests;
