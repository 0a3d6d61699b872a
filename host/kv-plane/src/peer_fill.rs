//! Fill of feeds from the indexes of other routers: the contents of a feed's caches, out and in.
//!
//! Contents and position are taken together on the feeds' thread, so no event is between them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv_feed::{Endpoint, FeedPosition, FeedSeed, FeedSpec, FeedState, FeedStatus, KvFeeds};
use kv_index::{Holder, SharedPrefixIndex};
use replicas::{ContentsPosition, FeedContents, FeedKey, MOST_CONTENTS_BYTES, RefusalReason, TransferError};
use routing::WorkerId;
use tokio::sync::oneshot;

/// Most blocks of a cache that are exported: each takes 16 bytes at least.
const MOST_BLOCKS: usize = MOST_CONTENTS_BYTES / 16;

/// Fill of feeds from other routers.
#[derive(Debug)]
pub struct PeerFill {
    feeds: Arc<KvFeeds>,
    index: Arc<SharedPrefixIndex>,
    state: Mutex<PeerFillState>,
}

#[derive(Debug, Default)]
struct PeerFillState {
    /// Set while the start waits for other routers.
    is_open: bool,
    /// Feeds that are not fetched any more.
    settled: HashSet<FeedKey>,
    filled: usize,
}

/// A feed whose contents are wanted from another router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedContents {
    /// Feed.
    pub feed: FeedKey,
    /// Number of the oldest message that this router has.
    pub known_from: Option<u64>,
}

impl PeerFill {
    pub(crate) fn new(feeds: Arc<KvFeeds>, index: Arc<SharedPrefixIndex>) -> Self {
        Self {
            feeds,
            index,
            state: Mutex::default(),
        }
    }

    /// Begins to take over contents of other routers.
    pub fn open(&self) {
        self.state().is_open = true;
    }

    /// Stops taking over contents of other routers.
    pub fn close(&self) {
        self.state().is_open = false;
    }

    /// Returns whether contents may still be wanted.
    pub fn is_open(&self) -> bool {
        self.state().is_open
    }

    /// Returns the number of feeds that took over the contents of another router.
    pub fn filled(&self) -> usize {
        self.state().filled
    }

    /// Returns the feeds whose contents are wanted: their replay has ended, and did not reach back to the start of the
    /// publisher.
    pub fn wanted(&self) -> Vec<WantedContents> {
        let settled = self.settled();
        Self::wanted_among(&self.feeds.engines(), settled.as_ref())
    }

    /// Returns the feeds that are settled; `None` if nothing is wanted any more. Read it before the status of feeds: a
    /// settled feed has its contents by then.
    pub(crate) fn settled(&self) -> Option<HashSet<FeedKey>> {
        let state = self.state();
        state.is_open.then(|| state.settled.clone())
    }

    /// Returns the feeds among these whose contents are wanted.
    pub(crate) fn wanted_among(
        engines: &[(FeedSpec, FeedStatus)],
        settled: Option<&HashSet<FeedKey>>,
    ) -> Vec<WantedContents> {
        let Some(settled) = settled else {
            return Vec::new();
        };
        let wanted = engines.iter().filter(|(spec, status)| is_wanted(spec, status));
        let wanted = wanted.map(|(spec, status)| WantedContents {
            feed: key_of(spec),
            known_from: status.known_from,
        });
        wanted.filter(|wanted| !settled.contains(&wanted.feed)).collect()
    }

    /// Wants the contents of a feed no more.
    pub fn settle(&self, feed: FeedKey) {
        self.state().settled.insert(feed);
    }

    /// Returns the contents of a feed as bytes, once the feeds' thread has read them. The answer may never come: the
    /// channel then ends.
    pub fn export(
        &self,
        feed: FeedKey,
        known_from: Option<u64>,
    ) -> oneshot::Receiver<Result<Vec<u8>, RefusalReason>> {
        let (sender, receiver) = oneshot::channel();
        let Some(spec) = self.spec_of(feed) else {
            // The receiver is here.
            let _ = sender.send(Err(RefusalReason::NotCurrent));
            return receiver;
        };
        let index = Arc::clone(&self.index);
        let read = move |contents: &kv_feed::FeedContents<'_>| {
            // The requesting router may have given up.
            let _ = sender.send(read_contents(&index, contents, known_from));
        };
        self.feeds.read_contents(&spec, Box::new(read));
        receiver
    }

    /// Replaces the contents of a feed's caches by those of another router. The answer is `true` if they were taken.
    /// The feed then requests the proof that they fit.
    ///
    /// # Errors
    /// [`TransferError`] for unreadable contents.
    pub fn seed(
        self: &Arc<Self>,
        feed: FeedKey,
        bytes: &[u8],
    ) -> Result<oneshot::Receiver<bool>, TransferError> {
        let FeedContents { position, caches } = FeedContents::decode(bytes)?;
        let (sender, receiver) = oneshot::channel();
        let Some(spec) = self.spec_of(feed) else {
            // The receiver is here.
            let _ = sender.send(false);
            return Ok(receiver);
        };
        let (index, fill) = (Arc::clone(&self.index), Arc::clone(self));
        let seed = FeedSeed {
            position: FeedPosition {
                sequence: position.sequence,
                fingerprint: position.fingerprint,
                known_from: position.known_from,
            },
            ranks: caches.iter().map(|(rank, _)| *rank).collect(),
            fill: Box::new(move |worker: WorkerId| {
                for (rank, cache) in caches {
                    index.import(Holder { worker, rank }, &cache);
                }
            }),
            done: Box::new(move |is_taken| {
                fill.state().filled += usize::from(is_taken);
                // The start may be over.
                let _ = sender.send(is_taken);
            }),
        };
        self.feeds.seed(&spec, seed);
        Ok(receiver)
    }

    fn spec_of(&self, feed: FeedKey) -> Option<FeedSpec> {
        let mut engines = self.feeds.engines().into_iter();
        engines.find_map(|(spec, _)| (key_of(&spec) == feed).then_some(spec))
    }

    fn state(&self) -> MutexGuard<'_, PeerFillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_wanted(spec: &FeedSpec, status: &FeedStatus) -> bool {
    let is_incomplete = status.state == FeedState::Live && !status.complete;
    // Without a replay nothing proves that contents fit. A publisher that connects to us has another address there.
    is_incomplete && status.can_replay && matches!(spec.endpoint, Endpoint::Connect(_))
}

fn key_of(spec: &FeedSpec) -> FeedKey {
    let rank = spec.rank.map(|rank| rank.0);
    FeedKey::of(&spec.name, spec.endpoint.address(), &spec.topic, rank)
}

/// Reads the caches of a feed from the index, on the feeds' thread.
fn read_contents(
    index: &SharedPrefixIndex,
    contents: &kv_feed::FeedContents<'_>,
    known_from: Option<u64>,
) -> Result<Vec<u8>, RefusalReason> {
    let position = contents.position;
    if known_from.is_some_and(|known| position.known_from >= known) {
        return Err(RefusalReason::NothingOlder);
    }
    let caches = contents.ranks.iter().filter_map(|&rank| {
        let holder = Holder {
            worker: contents.worker,
            rank,
        };
        Some((rank, index.export(holder, MOST_BLOCKS)?))
    });
    let contents = FeedContents {
        position: ContentsPosition {
            sequence: position.sequence,
            fingerprint: position.fingerprint,
            known_from: position.known_from,
        },
        caches: caches.collect(),
    };
    Ok(contents.encode())
}
