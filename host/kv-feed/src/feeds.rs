//! The handle on the feeds: says which to follow, reads how they are, ends their thread.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use routing::WorkerId;
use zmq::{Context, DONTWAIT, Socket};

use crate::sockets::{Contexts, wake_pair};
use crate::spec::{Feed, FeedSink, FeedSpec, StoreSpec};
use crate::status::{FeedStatus, StoreStatus};
use crate::thread::{FeedThread, Orders, Wanted};

/// Feeds that one [`KvFeeds`] follows. Each needs five file descriptors, and two more while a replay runs.
pub const MAX_FEEDS: usize = 4000;

/// Why feeds could not be started or set.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// libzmq refused the sockets between the handle and the thread.
    #[error("failed to open the feeds' control sockets")]
    Control(#[source] zmq::Error),
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
    caller: Mutex<Caller>,
    thread: Option<JoinHandle<()>>,
}

/// What only callers use; the feeds' thread never waits for it.
struct Caller {
    /// Wakes the thread out of its poll: at once, and without any wake-up while nothing happens.
    waker: Socket,
    feeds: Vec<Wanted>,
}

impl KvFeeds {
    /// Starts the thread, following nothing yet.
    ///
    /// # Errors
    /// Where the system has no more threads or file descriptors.
    pub fn start(sink: Box<dyn FeedSink>) -> Result<Self, FeedError> {
        let (waker, woken) = wake_pair(&Context::new()).map_err(FeedError::Control)?;
        let orders = Arc::<Mutex<Orders>>::default();
        let thread = FeedThread {
            contexts: Contexts::default(),
            woken,
            orders: Arc::clone(&orders),
            sink,
            subscriptions: Vec::new(),
        };
        let thread = Builder::new()
            .name("kv-feed".into())
            .spawn(|| thread.run())
            .map_err(FeedError::Thread)?;
        let caller = Mutex::new(Caller {
            waker,
            feeds: Vec::new(),
        });
        Ok(Self {
            orders,
            caller,
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
        self.follow(&mut self.caller(), wanted);
        left_out
    }

    /// Follows these beside those that stay whatever the list says.
    fn change(&self, wanted: Vec<Feed>, stays: impl Fn(&Feed) -> bool) -> Result<(), FeedError> {
        let mut caller = self.caller();
        let known = caller.feeds.iter().map(|(known, _)| known);
        let mut feeds: Vec<Feed> = known.filter(|known| stays(known)).cloned().collect();
        feeds.extend(wanted);
        Self::check(feeds.len())?;
        self.follow(&mut caller, feeds);
        Ok(())
    }

    /// Follows each of these once; one that is known keeps its counters.
    fn follow(&self, caller: &mut Caller, wanted: Vec<Feed>) {
        let mut feeds: Vec<Wanted> = Vec::with_capacity(wanted.len());
        for feed in wanted {
            if feeds.iter().all(|(known, _)| *known != feed) {
                let before = caller.feeds.iter().find(|(known, _)| *known == feed);
                let counters = before
                    .map(|(_, counters)| Arc::clone(counters))
                    .unwrap_or_default();
                feeds.push((feed, counters));
            }
        }
        caller.feeds.clone_from(&feeds);
        self.orders().feeds = Some(feeds);
        wake(&caller.waker);
    }

    /// Tells that a worker's engine works though its feeds are silent: they are subscribed to anew, and not live until
    /// something is heard.
    pub fn doubt(&self, worker: WorkerId) {
        self.orders().doubted.insert(worker);
        wake(&self.caller().waker);
    }

    /// How each engine's feed is, in the order set.
    #[must_use]
    pub fn status(&self) -> Vec<FeedStatus> {
        let ended = self.has_ended();
        let caller = self.caller();
        let engines = caller.feeds.iter().filter_map(|(feed, counters)| match feed {
            Feed::Engine(spec) => Some(counters.read(spec, ended)),
            Feed::Store(_) => None,
        });
        engines.collect()
    }

    /// How each store's feed is, in the order set.
    #[must_use]
    pub fn store_status(&self) -> Vec<StoreStatus> {
        let ended = self.has_ended();
        let caller = self.caller();
        let stores = caller.feeds.iter().filter_map(|(feed, counters)| match feed {
            Feed::Engine(_) => None,
            Feed::Store(spec) => Some(counters.read_store(spec, ended)),
        });
        stores.collect()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn caller(&self) -> MutexGuard<'_, Caller> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A full queue or an ended thread needs no further wake-up.
fn wake(waker: &Socket) {
    let _ = waker.send(&b""[..], DONTWAIT);
}

impl Drop for KvFeeds {
    fn drop(&mut self) {
        self.orders().stop = true;
        wake(&self.caller().waker);
        if let Some(thread) = self.thread.take() {
            // It ends only by returning or by a panic of the sink, which has been reported when it happened.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for KvFeeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvFeeds")
            .field("feeds", &self.caller().feeds.len())
            .finish_non_exhaustive()
    }
}
