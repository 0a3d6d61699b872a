//! The handle on the feeds: says which to follow, reads how they are, ends their thread.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use routing::WorkerId;

use crate::link::{Bell, Reader};
use crate::spec::{Feed, FeedSink, FeedSpec, StoreSpec};
use crate::status::{FeedStatus, StoreStatus};
use crate::thread::{FeedThread, Orders, Wanted};
use crate::zmtp::FeedLimits;

/// Feeds that one [`KvFeeds`] follows. Each needs a file descriptor, and another while a replay runs.
pub const MAX_FEEDS: usize = 4000;

/// Why feeds could not be started or set.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The system refused the thread that reads from sockets, or its poll.
    #[error("failed to start the thread that reads KV events")]
    Reader(#[source] io::Error),
    /// The system refused a thread.
    #[error("failed to start the feeds' thread")]
    Thread(#[source] io::Error),
    /// More feeds than [`MAX_FEEDS`]; the former list stays in force.
    #[error("failed to follow {wanted} feeds: at most {MAX_FEEDS} are supported")]
    TooMany {
        /// How many were asked for.
        wanted: usize,
    },
}

/// Follows KV event publishers in a thread of its own, until dropped.
pub struct KvFeeds {
    orders: Arc<Mutex<Orders>>,
    /// Wakes the thread: at once, and without any wake-up while nothing happens.
    bell: Arc<Bell>,
    reader: Arc<Reader>,
    /// What callers want followed; the feeds' thread never waits for it.
    wanted: Mutex<Vec<Wanted>>,
    thread: Option<JoinHandle<()>>,
}

impl KvFeeds {
    /// Starts the threads, following nothing yet.
    ///
    /// # Errors
    /// Where the system has no more threads or file descriptors.
    pub fn start(sink: Box<dyn FeedSink>, limits: FeedLimits) -> Result<Self, FeedError> {
        let bell = Arc::<Bell>::default();
        let reader = Reader::start(limits, Arc::clone(&bell)).map_err(FeedError::Reader)?;
        let reader = Arc::new(reader);
        let orders = Arc::<Mutex<Orders>>::default();
        let thread = FeedThread {
            reader: Arc::clone(&reader),
            bell: Arc::clone(&bell),
            orders: Arc::clone(&orders),
            sink,
            subscriptions: Vec::new(),
        };
        let thread = Builder::new()
            .name("kv-feed".into())
            .spawn(|| thread.run())
            .map_err(FeedError::Thread)?;
        Ok(Self {
            orders,
            bell,
            reader,
            wanted: Mutex::default(),
            thread: Some(thread),
        })
    }

    /// Follows exactly these engines from now on. Feeds whose spec did not change keep their sockets; those that are gone
    /// reset their caches. Returns before it is done: only the latest list counts.
    ///
    /// # Errors
    /// Where there are too many; nothing changes then.
    pub fn set(&self, specs: Vec<FeedSpec>) -> Result<(), FeedError> {
        let is_store = |feed: &Feed| matches!(feed, Feed::Store(_));
        self.change(specs.into_iter().map(Feed::Engine).collect(), is_store)
    }

    /// The same for stores.
    ///
    /// # Errors
    /// As for [`KvFeeds::set`].
    pub fn set_stores(&self, specs: Vec<StoreSpec>) -> Result<(), FeedError> {
        let is_engine = |feed: &Feed| matches!(feed, Feed::Engine(_));
        self.change(specs.into_iter().map(Feed::Store).collect(), is_engine)
    }

    /// Checks that so many feeds, of engines and stores together, are not more than [`MAX_FEEDS`].
    ///
    /// # Errors
    /// [`FeedError::TooMany`].
    pub fn check(wanted: usize) -> Result<(), FeedError> {
        if wanted > MAX_FEEDS {
            return Err(FeedError::TooMany { wanted });
        }
        Ok(())
    }

    /// Follows exactly these stores and engines from now on, as [`KvFeeds::set`]. It cannot fail: of more than [`MAX_FEEDS`] the
    /// last ones are left out. Returns how many; none where [`KvFeeds::check`] has found room for all.
    pub fn replace(&self, engines: Vec<FeedSpec>, stores: Vec<StoreSpec>) -> usize {
        let stores = stores.into_iter().map(Feed::Store);
        let mut wanted: Vec<Feed> = stores.chain(engines.into_iter().map(Feed::Engine)).collect();
        let left_out = wanted.len().saturating_sub(MAX_FEEDS);
        wanted.truncate(MAX_FEEDS);
        self.follow(&mut self.wanted(), wanted);
        left_out
    }

    /// Follows these beside those that stay whatever the list says.
    fn change(&self, wanted: Vec<Feed>, stays: impl Fn(&Feed) -> bool) -> Result<(), FeedError> {
        let mut before = self.wanted();
        let known = before.iter().map(|(known, _)| known);
        let mut feeds: Vec<Feed> = known.filter(|known| stays(known)).cloned().collect();
        feeds.extend(wanted);
        Self::check(feeds.len())?;
        self.follow(&mut before, feeds);
        Ok(())
    }

    /// Follows each of these once; one that is known keeps its counters.
    fn follow(&self, followed: &mut Vec<Wanted>, wanted: Vec<Feed>) {
        let mut feeds: Vec<Wanted> = Vec::with_capacity(wanted.len());
        for feed in wanted {
            if feeds.iter().all(|(known, _)| *known != feed) {
                let before = followed.iter().find(|(known, _)| *known == feed);
                let counters = before
                    .map(|(_, counters)| Arc::clone(counters))
                    .unwrap_or_default();
                feeds.push((feed, counters));
            }
        }
        followed.clone_from(&feeds);
        self.orders().feeds = Some(feeds);
        self.bell.order();
    }

    /// Tells that a worker's engine works though its feeds are silent: they are subscribed to anew, and not live until
    /// something is heard.
    pub fn doubt(&self, worker: WorkerId) {
        self.orders().doubted.insert(worker);
        self.bell.order();
    }

    /// Returns how many bytes of messages wait between sockets and decoder, of all feeds together.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.reader.held_bytes()
    }

    /// How each engine's feed is, in the order set.
    #[must_use]
    pub fn status(&self) -> Vec<FeedStatus> {
        let ended = self.has_ended();
        let wanted = self.wanted();
        let engines = wanted.iter().filter_map(|(feed, counters)| match feed {
            Feed::Engine(spec) => Some(counters.read(spec, ended)),
            Feed::Store(_) => None,
        });
        engines.collect()
    }

    /// How each store's feed is, in the order set.
    #[must_use]
    pub fn store_status(&self) -> Vec<StoreStatus> {
        let ended = self.has_ended();
        let wanted = self.wanted();
        let stores = wanted.iter().filter_map(|(feed, counters)| match feed {
            Feed::Engine(_) => None,
            Feed::Store(spec) => Some(counters.read_store(spec, ended)),
        });
        stores.collect()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KvFeeds {
    fn drop(&mut self) {
        self.orders().stop = true;
        self.bell.order();
        if let Some(thread) = self.thread.take() {
            // It ends only by returning or by a panic of the sink, which has been reported when it happened.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for KvFeeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvFeeds")
            .field("feeds", &self.wanted().len())
            .finish_non_exhaustive()
    }
}
