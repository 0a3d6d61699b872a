//! Stores that workers share: identities, bindings to workers, and status. Pure: plans, answers and the time come in.

use std::time::{Duration, Instant};

use inference_api::StoreStatus as AdminStatus;
use kv_feed::{Endpoint, StoreSpec, StoreStatus};
use routing::{StoreId, WorkerId};
use tracing::{info, warn};

/// Pause after an answer: the build does not change, but the counters do.
const PAUSE: Duration = Duration::from_secs(60);
/// Pause after a failed query.
const RETRY: Duration = Duration::from_secs(5);

/// Store of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlan {
    /// Name in the configuration.
    pub name: Box<str>,
    /// Endpoint of its events.
    pub endpoint: String,
    /// `http://host:port` of its admin pages.
    pub status: Option<Box<str>>,
    /// Objects that make a block complete.
    pub shards: Option<u32>,
    /// Workers that share it.
    pub workers: Vec<WorkerId>,
}

/// Report on a store, for the admin page and the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// State of its feed.
    pub feed: StoreStatus,
    /// Status of its admin pages, if they were queried and answered.
    pub reported: Option<AdminStatus>,
    /// The objects are ambiguous and count for no worker.
    pub is_ambiguous: bool,
}

impl StoreReport {
    /// Returns the reason why the store's blocks are unknown, if they are.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.feed.reason.text().or(self.is_ambiguous.then_some(AMBIGUOUS))
    }
}

/// Reason of a store without hits.
const AMBIGUOUS: &str = "the store has objects of several models, or more than 128 kinds of shards: its blocks are not used until its feed is reset";

#[derive(Debug)]
struct StoreState {
    id: StoreId,
    plan: StorePlan,
    reported: Option<AdminStatus>,
    is_ambiguous: bool,
    /// Next query of its admin pages.
    due: Instant,
}

/// All stores.
#[derive(Debug, Default)]
pub(super) struct Stores(Vec<StoreState>);

impl Stores {
    /// Replaces the stores; `new` gives ids. A store at another endpoint gets a new id, since its content is another.
    pub(super) fn set(&mut self, plans: Vec<StorePlan>, now: Instant, new: impl Fn() -> StoreId) {
        let before = std::mem::take(&mut self.0);
        for plan in plans {
            let same = before
                .iter()
                .find(|known| (&known.plan.name, &known.plan.endpoint) == (&plan.name, &plan.endpoint));
            let same_pages = same.filter(|known| known.plan.status == plan.status);
            let id = same.map_or_else(&new, |known| known.id);
            self.0.push(StoreState {
                id,
                reported: same_pages.and_then(|known| known.reported),
                is_ambiguous: same.is_some_and(|known| known.is_ambiguous),
                due: same_pages.map_or(now, |known| known.due),
                plan,
            });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the feeds to follow.
    pub(super) fn specs(&self) -> Vec<StoreSpec> {
        let spec = |known: &StoreState| StoreSpec {
            store: known.id,
            name: known.plan.name.clone(),
            endpoint: Endpoint::Connect(known.plan.endpoint.clone()),
            curve: None,
        };
        self.0.iter().map(spec).collect()
    }

    /// Returns the stores with their shards and workers.
    pub(super) fn bindings(&self) -> impl Iterator<Item = (StoreId, Option<u32>, &[WorkerId])> {
        self.0
            .iter()
            .map(|known| (known.id, known.plan.shards, &known.plan.workers[..]))
    }

    /// Returns the stores whose admin pages are due for a query, with their URLs.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(StoreId, Box<str>)> {
        let mut due = Vec::new();
        for known in &mut self.0 {
            if let Some(status) = known.plan.status.as_ref().filter(|_| now >= known.due) {
                known.due = now + RETRY;
                due.push((known.id, status.clone()));
            }
        }
        due
    }

    /// Records the status of a store's admin pages.
    pub(super) fn learn(&mut self, id: StoreId, reported: AdminStatus, now: Instant) {
        let Some(known) = self.0.iter_mut().find(|known| known.id == id) else {
            return;
        };
        known.due = now + PAUSE;
        let before = known.reported.replace(reported).map(|reported| reported.enabled);
        if before == Some(reported.enabled) {
            return;
        }
        if reported.enabled {
            info!(store = %known.plan.name, "the store publishes KV events");
        } else {
            warn!(
                store = %known.plan.name,
                "the store publishes no KV events: its build has no publisher, or it was started without one"
            );
        }
    }

    /// Logs the stores that have become ambiguous, each once.
    pub(super) fn watch(&mut self, is_ambiguous: impl Fn(StoreId) -> bool) {
        for known in &mut self.0 {
            let before = std::mem::replace(&mut known.is_ambiguous, is_ambiguous(known.id));
            if known.is_ambiguous && !before {
                warn!(store = %known.plan.name, "{AMBIGUOUS}");
            }
        }
    }

    /// Joins feeds and status. A store that is registered with the indexer has no status.
    pub(super) fn report(
        &self,
        feeds: Vec<StoreStatus>,
        is_ambiguous: impl Fn(StoreId) -> bool,
    ) -> Vec<StoreReport> {
        let report = |feed: StoreStatus| StoreReport {
            reported: self
                .0
                .iter()
                .find(|known| known.id == feed.store)
                .and_then(|known| known.reported),
            is_ambiguous: is_ambiguous(feed.store),
            feed,
        };
        feeds.into_iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn plan(endpoint: &str, status: Option<&str>) -> StorePlan {
        StorePlan {
            name: "cache".into(),
            endpoint: endpoint.to_owned(),
            status: status.map(Into::into),
            shards: Some(2),
            workers: vec![WorkerId(1)],
        }
    }

    /// Plans as they come, each new store under the next id.
    struct Scenario {
        stores: Stores,
        now: Instant,
        last: Cell<u32>,
    }

    impl Scenario {
        fn new() -> Self {
            Self {
                stores: Stores::default(),
                now: Instant::now(),
                last: Cell::new(0),
            }
        }

        fn set(&mut self, plans: Vec<StorePlan>) {
            let last = &self.last;
            let new = || {
                last.set(last.get() + 1);
                StoreId(last.get())
            };
            self.stores.set(plans, self.now, new);
        }

        fn id(&self) -> StoreId {
            self.stores.specs()[0].store
        }
    }

    fn reported(enabled: bool) -> AdminStatus {
        AdminStatus {
            enabled,
            published_events: None,
            dropped_events: Some(3),
            skipped_unparsed_keys: None,
        }
    }

    #[test]
    fn a_store_keeps_its_identity_until_it_moves() {
        let mut scenario = Scenario::new();
        scenario.set(vec![plan("tcp://a:1", None)]);
        assert_eq!(scenario.id(), StoreId(1));
        let unshared = StorePlan {
            workers: Vec::new(),
            ..plan("tcp://a:1", None)
        };
        scenario.set(vec![unshared]);
        let bound: Vec<_> = scenario.stores.bindings().collect();
        assert_eq!(bound, [(StoreId(1), Some(2), &[][..])]);
        scenario.set(vec![plan("tcp://b:1", None)]);
        assert_eq!(scenario.id(), StoreId(2));
        scenario.set(Vec::new());
        assert!(scenario.stores.is_empty());
        scenario.set(vec![plan("tcp://b:1", None)]);
        assert_eq!(scenario.id(), StoreId(3), "its known contents are gone");
    }

    #[test]
    fn a_store_is_queried_until_it_answers_and_then_rarely() {
        let mut scenario = Scenario::new();
        scenario.set(vec![plan("tcp://a:1", Some("http://a:9003"))]);
        let (id, now) = (scenario.id(), scenario.now);
        assert_eq!(scenario.stores.due(now), [(id, "http://a:9003".into())]);
        assert!(scenario.stores.due(now).is_empty());
        assert_eq!(scenario.stores.due(now + RETRY).len(), 1);
        scenario.stores.learn(id, reported(false), now);
        assert!(scenario.stores.due(now + RETRY).is_empty());
        assert_eq!(scenario.stores.due(now + PAUSE).len(), 1);
    }

    #[test]
    fn a_store_without_admin_pages_is_not_queried() {
        let mut scenario = Scenario::new();
        scenario.set(vec![plan("tcp://a:1", None)]);
        assert!(scenario.stores.due(scenario.now + PAUSE).is_empty());
    }
}
