//! Contents of a feed's caches at a position: read from one router's feed, and the seed of another's.

use std::fmt;

use routing::{DpRank, WorkerId};

/// Position in a publisher's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedPosition {
    /// Number of the last applied message.
    pub sequence: u64,
    /// [Fingerprint](kv_events::fingerprint) of its payload.
    pub fingerprint: u64,
    /// Number of the oldest applied message; everything between was applied. The next number after `sequence` if that
    /// message emptied the caches.
    pub known_from: u64,
}

/// Caches of a feed, at a position that does not change while they are read.
#[derive(Debug)]
pub struct FeedContents<'a> {
    /// Worker of the caches.
    pub worker: WorkerId,
    /// Ranks that the feed has delivered events of.
    pub ranks: &'a [DpRank],
    /// Position.
    pub position: FeedPosition,
}

/// Seed of a feed.
pub struct FeedSeed {
    /// Position.
    pub position: FeedPosition,
    /// Ranks of the caches.
    pub ranks: Vec<DpRank>,
    /// Fills the caches of the worker, which are empty by then.
    pub fill: Box<dyn FnOnce(WorkerId) + Send>,
    /// Called at the end, with `true` if the seed was taken. The proof may still void it.
    pub done: Box<dyn FnOnce(bool) + Send>,
}

/// Reader of the contents, on the feeds' thread.
pub type ReadContents = Box<dyn FnOnce(&FeedContents<'_>) + Send>;

impl fmt::Debug for FeedSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedSeed")
            .field("position", &self.position)
            .field("ranks", &self.ranks)
            .finish_non_exhaustive()
    }
}
