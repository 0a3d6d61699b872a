//! Feed manager: sets the followed publishers, reports their status, ends the threads.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use routing::WorkerId;

use crate::link::{FeedNotifier, LinkReader};
use crate::recovery::FIRST_CHECK;
use crate::seed::{FeedSeed, ReadContents};
use crate::spec::{FeedSink, FeedSpec, FeedTarget, StoreSpec};
use crate::status::{FeedStatus, StoreStatus};
use crate::thread::{Commands, ContentsCommand, ContentsWork, FeedThread, MOST_CONTENTS, WantedFeed};
use crate::zmtp::FeedLimits;

/// Most feeds of one [`KvFeeds`]. Each needs a file descriptor, and a second one during a replay.
pub const MAX_FEEDS: usize = 4000;

/// Error of starting or setting feeds.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The system refused the I/O thread, or its poll.
    #[error("failed to start the thread that reads KV events")]
    Reader(#[source] io::Error),
    /// The system refused the feeds' thread.
    #[error("failed to start the feeds' thread")]
    Thread(#[source] io::Error),
    /// More feeds than [`MAX_FEEDS`]; the former list remains active.
    #[error("failed to follow {wanted} feeds: at most {MAX_FEEDS} are supported")]
    TooMany {
        /// Number of requested feeds.
        wanted: usize,
    },
}

/// Follows KV event publishers in a thread of its own, until dropped.
pub struct KvFeeds {
    commands: Arc<Mutex<Commands>>,
    /// Wakes the thread. An idle thread does not wake up.
    notifier: Arc<FeedNotifier>,
    reader: Arc<LinkReader>,
    /// The requested feeds; the feeds' thread never waits for this lock.
    wanted: Mutex<Vec<WantedFeed>>,
    thread: Option<JoinHandle<()>>,
}

impl KvFeeds {
    /// Starts the threads without feeds.
    ///
    /// # Errors
    /// Returns an error if the system has no more threads or file descriptors.
    pub fn start(sink: Box<dyn FeedSink>, limits: FeedLimits) -> Result<Self, FeedError> {
        Self::start_with_first_check(FIRST_CHECK, sink, limits)
    }

    /// Works as [`KvFeeds::start`]. A silent publisher is first checked for lost messages after `first_check`.
    ///
    /// # Errors
    /// Returns an error if the system has no more threads or file descriptors.
    pub fn start_with_first_check(
        first_check: Duration,
        sink: Box<dyn FeedSink>,
        limits: FeedLimits,
    ) -> Result<Self, FeedError> {
        let notifier = Arc::<FeedNotifier>::default();
        let reader = LinkReader::start(limits, Arc::clone(&notifier)).map_err(FeedError::Reader)?;
        let reader = Arc::new(reader);
        let commands = Arc::<Mutex<Commands>>::default();
        let thread = FeedThread {
            reader: Arc::clone(&reader),
            notifier: Arc::clone(&notifier),
            commands: Arc::clone(&commands),
            sink,
            first_check,
            subscriptions: Vec::new(),
        };
        let thread = Builder::new()
            .name("kv-feed".into())
            .spawn(|| thread.run())
            .map_err(FeedError::Thread)?;
        Ok(Self {
            commands,
            notifier,
            reader,
            wanted: Mutex::default(),
            thread: Some(thread),
        })
    }

    /// Checks that this number of feeds, of engines and stores together, is at most [`MAX_FEEDS`].
    ///
    /// # Errors
    /// [`FeedError::TooMany`].
    pub fn check(wanted: usize) -> Result<(), FeedError> {
        if wanted > MAX_FEEDS {
            return Err(FeedError::TooMany { wanted });
        }
        Ok(())
    }

    /// Replaces the followed engines and stores. Feeds with an unchanged spec keep their sockets; removed feeds reset
    /// their caches. Does not wait for either: only the latest list counts.
    ///
    /// Of more than [`MAX_FEEDS`] the last ones are left out. Returns their number. It is zero if [`KvFeeds::check`]
    /// has succeeded.
    pub fn replace(&self, engines: Vec<FeedSpec>, stores: Vec<StoreSpec>) -> usize {
        let stores = stores.into_iter().map(FeedTarget::Store);
        let mut wanted: Vec<FeedTarget> = stores
            .chain(engines.into_iter().map(FeedTarget::Engine))
            .collect();
        let left_out = wanted.len().saturating_sub(MAX_FEEDS);
        wanted.truncate(MAX_FEEDS);
        self.follow(&mut self.wanted(), wanted);
        left_out
    }

    /// Adds each feed once; a known feed keeps its counters.
    fn follow(&self, followed: &mut Vec<WantedFeed>, wanted: Vec<FeedTarget>) {
        let mut feeds: Vec<WantedFeed> = Vec::with_capacity(wanted.len());
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
        self.commands().feeds = Some(feeds);
        self.notifier.notify_commands();
    }

    /// Marks a worker's feeds as suspect: its engine works, but they are silent. They subscribe again and are not live
    /// until a message arrives.
    pub fn mark_suspect(&self, worker: WorkerId) {
        self.commands().suspects.insert(worker);
        self.notifier.notify_commands();
    }

    /// Reads the contents of an engine's caches on the feeds' thread, between two messages. `read` is dropped if the
    /// feed is not followed, or messages may be missing.
    pub fn read_contents(&self, feed: &FeedSpec, read: ReadContents) {
        self.work_on(feed, ContentsWork::Read(read));
    }

    /// Replaces the contents of an engine's caches by a seed, and requests the publisher's proof that it fits. The seed
    /// is not taken if the feed is not current, has no replay socket, or has as much itself. It is dropped if the feed
    /// is not followed.
    pub fn seed(&self, feed: &FeedSpec, seed: FeedSeed) {
        self.work_on(feed, ContentsWork::Seed(seed));
    }

    /// Returns each engine's feed with its status, in the order set.
    #[must_use]
    pub fn engines(&self) -> Vec<(FeedSpec, FeedStatus)> {
        let ended = self.has_ended();
        let wanted = self.wanted();
        let engines = wanted.iter().filter_map(|(feed, counters)| match feed {
            FeedTarget::Engine(spec) => Some((spec.clone(), counters.read(spec, ended))),
            FeedTarget::Store(_) => None,
        });
        engines.collect()
    }

    fn work_on(&self, feed: &FeedSpec, work: ContentsWork) {
        let wanted = self.wanted();
        let is_it = |target: &FeedTarget| matches!(target, FeedTarget::Engine(spec) if spec == feed);
        let Some((_, counters)) = wanted.iter().find(|(target, _)| is_it(target)) else {
            return;
        };
        let mut commands = self.commands();
        if commands.contents.len() < MOST_CONTENTS {
            commands.contents.push(ContentsCommand {
                feed: Arc::clone(counters),
                work,
            });
            self.notifier.notify_commands();
        }
    }

    /// Returns the bytes of messages between sockets and decoder, of all feeds together.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.reader.held_bytes()
    }

    /// Returns the status of each engine's feed, in the order set.
    #[must_use]
    pub fn status(&self) -> Vec<FeedStatus> {
        let ended = self.has_ended();
        let wanted = self.wanted();
        let engines = wanted.iter().filter_map(|(feed, counters)| match feed {
            FeedTarget::Engine(spec) => Some(counters.read(spec, ended)),
            FeedTarget::Store(_) => None,
        });
        engines.collect()
    }

    /// Returns the status of each store's feed, in the order set.
    #[must_use]
    pub fn store_status(&self) -> Vec<StoreStatus> {
        let ended = self.has_ended();
        let wanted = self.wanted();
        let stores = wanted.iter().filter_map(|(feed, counters)| match feed {
            FeedTarget::Engine(_) => None,
            FeedTarget::Store(spec) => Some(counters.read_store(spec, ended)),
        });
        stores.collect()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wanted(&self) -> MutexGuard<'_, Vec<WantedFeed>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commands(&self) -> MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KvFeeds {
    fn drop(&mut self) {
        self.commands().stop = true;
        self.notifier.notify_commands();
        if let Some(thread) = self.thread.take() {
            // The thread ends only by returning or by a panic of the sink, which was reported when it happened.
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
