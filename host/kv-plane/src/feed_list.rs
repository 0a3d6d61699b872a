//! All feeds that are followed: those of the router's workers, and those of publishers that are registered with the
//! indexer. Each side sets its own; the feeds get both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexer_api::{FollowedFeed, FollowedWorker};
use kv_feed::{FeedError, FeedSpec, FeedStatus, KvFeeds, MAX_FEEDS, StoreSpec, StoreStatus};
use routing::{StoreId, Worker, WorkerId};
use tracing::error;

/// List of the followed feeds.
#[derive(Debug)]
pub(crate) struct FeedList {
    feeds: Arc<KvFeeds>,
    lists: Mutex<FeedLists>,
}

#[derive(Debug, Default)]
struct FeedLists {
    own: Vec<FeedSpec>,
    registered: Vec<FeedSpec>,
    /// The fleet's.
    workers: Vec<Arc<Worker>>,
    followed: Arc<[FollowedWorker]>,
    own_stores: Vec<StoreSpec>,
    registered_stores: Vec<StoreSpec>,
    last_store: u32,
    /// Number of the workers' feeds that are not followed.
    left_out: usize,
}

/// Feeds of the configured workers and stores.
#[derive(Debug, Default)]
pub(crate) struct OwnFeeds {
    pub(crate) engines: Vec<FeedSpec>,
    pub(crate) stores: Vec<StoreSpec>,
    /// The fleet's.
    pub(crate) workers: Vec<Arc<Worker>>,
}

impl FeedList {
    pub(crate) fn new(feeds: Arc<KvFeeds>) -> Self {
        Self {
            feeds,
            lists: Mutex::default(),
        }
    }

    /// Replaces the feeds of the workers. It cannot fail: those that do not fit are left out, and logged.
    pub(crate) fn set(&self, own: Vec<FeedSpec>) {
        let mut lists = self.lists();
        lists.own = own;
        self.follow(&mut lists);
    }

    /// Checks that so many feeds fit beside those that are registered.
    ///
    /// # Errors
    /// [`FeedError::TooMany`].
    pub(crate) fn check(&self, own: usize) -> Result<(), FeedError> {
        let lists = self.lists();
        KvFeeds::check(own + lists.registered.len() + lists.registered_stores.len())
    }

    /// Follows exactly these for the workers and their stores. It cannot fail: feeds that came after
    /// [`FeedList::check`] and no longer fit are left out, and logged.
    pub(crate) fn replace(&self, own: OwnFeeds) {
        let mut lists = self.lists();
        lists.own = own.engines;
        lists.own_stores = own.stores;
        lists.workers = own.workers;
        self.follow(&mut lists);
    }

    /// Follows the lists. Of too many feeds, the last ones of the workers are left out.
    fn follow(&self, lists: &mut FeedLists) {
        let beyond = self.feeds.replace(lists.all(), lists.all_stores());
        let left_out = lists.own.len() - lists.followed_own().len() + beyond;
        // Once: each answer of an engine sets the list again.
        if left_out > 0 && lists.left_out == 0 {
            error!(
                left_out,
                "failed to follow every event feed: at most {MAX_FEEDS} are supported, the last ones are left out"
            );
        }
        lists.left_out = left_out;
        lists.note_followed();
    }

    /// Follows a publisher that is not a worker's.
    ///
    /// # Errors
    /// [`FeedError`] for too many feeds; nothing changes then.
    pub(crate) fn register(&self, feed: FeedSpec) -> Result<(), FeedError> {
        let mut lists = self.lists();
        lists.check_another()?;
        lists.registered.push(feed);
        self.follow(&mut lists);
        Ok(())
    }

    /// Ends the feed of a publisher or store.
    pub(crate) fn unregister(&self, worker: WorkerId) {
        let mut lists = self.lists();
        lists.registered.retain(|feed| feed.worker != worker);
        self.follow(&mut lists);
    }

    /// Returns a new id for a store.
    pub(crate) fn new_store(&self) -> StoreId {
        let mut lists = self.lists();
        lists.last_store += 1;
        StoreId(lists.last_store)
    }

    /// Follows another store.
    ///
    /// # Errors
    /// [`FeedError`] for too many feeds; nothing changes then.
    pub(crate) fn register_store(&self, store: StoreSpec) -> Result<(), FeedError> {
        let mut lists = self.lists();
        lists.check_another()?;
        lists.registered_stores.push(store);
        self.follow(&mut lists);
        Ok(())
    }

    /// Ends the feed of a publisher or store.
    pub(crate) fn unregister_store(&self, store: StoreId) {
        let mut lists = self.lists();
        lists.registered_stores.retain(|known| known.store != store);
        self.follow(&mut lists);
    }

    /// Returns the status of each store's feed: the configuration's and the registered ones.
    pub(crate) fn store_status(&self) -> Vec<StoreStatus> {
        self.feeds.store_status()
    }

    /// Returns the workers with feeds.
    pub(crate) fn followed(&self) -> Arc<[FollowedWorker]> {
        Arc::clone(&self.lists().followed)
    }

    /// Returns each engine's feed with its status.
    pub(crate) fn engines(&self) -> Vec<(FeedSpec, FeedStatus)> {
        self.feeds.engines()
    }

    /// Returns the status of each feed.
    pub(crate) fn status(&self) -> Vec<FeedStatus> {
        self.feeds.status()
    }

    /// Marks the feeds of a worker as suspect, so that they check for gaps.
    pub(crate) fn mark_suspect(&self, worker: WorkerId) {
        self.feeds.mark_suspect(worker);
    }

    fn lists(&self) -> MutexGuard<'_, FeedLists> {
        // Every change is made at once; none can be left half-made by a panic.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeedLists {
    /// Checks that one more feed fits.
    fn check_another(&self) -> Result<(), FeedError> {
        KvFeeds::check(self.own.len() + self.others() + 1)
    }

    /// Returns the number of feeds other than those of the workers.
    fn others(&self) -> usize {
        self.registered.len() + self.own_stores.len() + self.registered_stores.len()
    }

    /// Returns the workers' feeds that fit beside all others. Workers report theirs at any time, so there may be more.
    fn followed_own(&self) -> &[FeedSpec] {
        let room = MAX_FEEDS.saturating_sub(self.others());
        self.own.get(..room).unwrap_or(&self.own)
    }

    fn all(&self) -> Vec<FeedSpec> {
        [self.followed_own(), &self.registered].concat()
    }

    fn all_stores(&self) -> Vec<StoreSpec> {
        [&self.own_stores[..], &self.registered_stores].concat()
    }

    fn note_followed(&mut self) {
        self.followed = followed_workers(&self.workers, self.followed_own());
    }
}

/// Returns the workers that have feeds, each with all of its feeds.
fn followed_workers(workers: &[Arc<Worker>], feeds: &[FeedSpec]) -> Arc<[FollowedWorker]> {
    let mut by_worker: HashMap<WorkerId, Vec<FollowedFeed>> = HashMap::new();
    for feed in feeds {
        let of_worker = by_worker.entry(feed.worker).or_default();
        of_worker.push(followed_feed(feed));
    }
    let of = |worker: &Arc<Worker>| {
        Some(FollowedWorker {
            feeds: by_worker.remove(&worker.id())?.into(),
            worker: Arc::clone(worker),
        })
    };
    workers.iter().filter_map(of).collect()
}

fn followed_feed(feed: &FeedSpec) -> FollowedFeed {
    FollowedFeed {
        endpoint: feed.endpoint.address().into(),
        replay: feed.replay.as_deref().unwrap_or_default().into(),
        rank: feed.rank.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use kv_feed::{Endpoint, FeedLimits};
    use kv_index::{IndexLimits, SharedPrefixIndex};

    use super::*;
    use crate::index_sink::IndexSink;
    use crate::index_sink::tests::LiveWorkers;

    fn feed(worker: u32) -> FeedSpec {
        FeedSpec {
            worker: WorkerId(worker),
            name: worker.to_string().into(),
            endpoint: Endpoint::Connect("ipc:///nowhere/kv-events".into()),
            replay: None,
            topic: String::new(),
            rank: None,
            adapter: None,
            curve: None,
        }
    }

    #[test]
    fn engines_that_report_too_many_feeds_take_none_from_the_registered_publishers() {
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 8 }));
        let sink = IndexSink::new(index, Arc::<LiveWorkers>::default());
        let feeds = KvFeeds::start(Box::new(sink), FeedLimits::default()).unwrap();
        let list = FeedList::new(Arc::new(feeds));
        let followed = || -> Vec<u32> { list.status().iter().map(|feed| feed.worker.0).collect() };
        list.register(feed(7)).unwrap();
        // Equal feeds count, and are followed once.
        let mut own = vec![feed(1); MAX_FEEDS];
        own.push(feed(2));
        list.set(own.clone());
        assert_eq!(followed(), [1, 7]);
        assert!(list.register(feed(8)).is_err());
        list.unregister(WorkerId(7));
        assert_eq!(followed(), [1]);
        list.set(own.split_off(1));
        assert_eq!(followed(), [1, 2]);
    }
}
