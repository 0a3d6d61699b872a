//! What a feed is asked to follow, and whom it tells.

use std::fmt;

use routing::{BlockEvent, DpRank, WorkerId};

/// One publisher to follow. Feeds with equal specs are the same feed to [`KvFeeds::set`](crate::KvFeeds::set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedSpec {
    /// Whose caches the events are about.
    pub worker: WorkerId,
    /// The worker's name, for logs and status.
    pub name: Box<str>,
    /// The publisher's PUB socket, such as `tcp://10.0.0.1:5557`; connected to.
    pub endpoint: String,
    /// Its ROUTER socket for replays; none where it has none, and then a gap costs the whole cache's blocks.
    pub replay: Option<String>,
    /// Only messages whose topic begins so; empty for all.
    pub topic: String,
    /// The data-parallel rank of batches that do not name theirs; none for rank 0.
    pub rank: Option<DpRank>,
}

/// Takes in what the feeds learn, on the feeds' thread: it should be quick, as nothing is received meanwhile.
pub trait FeedSink: Send {
    /// Changes of one cache, in order.
    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]);

    /// Everything told of this cache so far is void.
    fn reset(&mut self, worker: WorkerId, rank: DpRank, reason: ResetReason);

    /// Whether what is told of this worker is current from now on; it is not before the first time.
    fn live(&mut self, worker: WorkerId, live: bool);
}

/// Why what was known of a cache is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetReason {
    /// The publisher started anew, with an empty cache.
    Restarted,
    /// Messages were lost, and there is no replay to ask for them.
    GapWithoutReplay,
    /// Messages were lost, and the publisher no longer has them.
    GapNotReplayed,
    /// Messages were lost, and the publisher did not answer in time.
    ReplayTimedOut,
    /// A replay of everything the publisher still has follows, in place of what was known.
    Rebuild,
    /// A message that may have held removals could not be read.
    Undecodable,
    /// The feed was taken away.
    FeedRemoved,
}

impl ResetReason {
    /// Its name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restarted => "restarted",
            Self::GapWithoutReplay => "gap-without-replay",
            Self::GapNotReplayed => "gap-not-replayed",
            Self::ReplayTimedOut => "replay-timed-out",
            Self::Rebuild => "rebuild",
            Self::Undecodable => "undecodable",
            Self::FeedRemoved => "feed-removed",
        }
    }
}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
