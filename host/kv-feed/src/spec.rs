//! What a feed is asked to follow, and whom it tells.

use std::fmt;

use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};

use crate::zmtp::CurveKeys;

/// One publisher to follow. Feeds with equal specs are the same feed to [`KvFeeds::set`](crate::KvFeeds::set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedSpec {
    /// Whose caches the events are about.
    pub worker: WorkerId,
    /// The worker's name, for logs and status.
    pub name: Box<str>,
    /// Where its PUB socket and ours meet.
    pub endpoint: Endpoint,
    /// Its ROUTER socket for replays; none where it has none, and then a gap costs the whole cache's blocks.
    pub replay: Option<String>,
    /// Only messages whose topic begins so; empty for all.
    pub topic: String,
    /// The data-parallel rank of batches that do not name theirs; none for rank 0.
    pub rank: Option<DpRank>,
    /// Keys of its CURVE sockets; none where they are open.
    pub curve: Option<CurveKeys>,
}

/// The publisher of a store that workers share. It repeats nothing: a lost message costs all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSpec {
    /// Whose objects the events are about.
    pub store: StoreId,
    /// The store's name, for logs and status.
    pub name: Box<str>,
    /// Where its PUB socket and ours meet.
    pub endpoint: Endpoint,
    /// As for [`FeedSpec::curve`].
    pub curve: Option<CurveKeys>,
}

/// Either of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Feed {
    Engine(FeedSpec),
    Store(StoreSpec),
}

impl Feed {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Engine(spec) => &spec.name,
            Self::Store(spec) => &spec.name,
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Engine(spec) => &spec.endpoint,
            Self::Store(spec) => &spec.endpoint,
        }
    }

    pub(crate) fn replay(&self) -> Option<&str> {
        match self {
            Self::Engine(spec) => spec.replay.as_deref(),
            Self::Store(_) => None,
        }
    }

    pub(crate) fn curve(&self) -> Option<&CurveKeys> {
        match self {
            Self::Engine(spec) => spec.curve.as_ref(),
            Self::Store(spec) => spec.curve.as_ref(),
        }
    }

    pub(crate) fn topic(&self) -> &str {
        match self {
            Self::Engine(spec) => &spec.topic,
            Self::Store(_) => "",
        }
    }
}

/// Where a publisher's PUB socket and our SUB socket meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The publisher binds it, such as `tcp://10.0.0.1:5557`: we connect.
    Connect(String),
    /// The publisher connects to it, such as `tcp://0.0.0.0:5557`: we bind. For one publisher: nothing in its messages
    /// tells two apart.
    Bind(String),
}

impl Endpoint {
    /// The address, whoever binds it.
    #[must_use]
    pub fn address(&self) -> &str {
        match self {
            Self::Connect(address) | Self::Bind(address) => address,
        }
    }
}

/// Takes in what the feeds learn, on the feeds' thread: it should be quick, as nothing is received meanwhile.
pub trait FeedSink: Send {
    /// One more feed tells of this worker from now on. It is not live yet.
    fn opened(&mut self, worker: WorkerId);

    /// A feed of this worker ended. It is not live any more, and every cache that it told of was reset.
    fn closed(&mut self, worker: WorkerId);

    /// Changes of one cache, in order.
    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]);

    /// Everything told of this cache so far is void.
    fn reset(&mut self, worker: WorkerId, rank: DpRank, reason: ResetReason);

    /// Changes of a store's objects, in order.
    fn objects(&mut self, store: StoreId, events: &[ObjectEvent]);

    /// Everything told of this store so far is void.
    fn reset_store(&mut self, store: StoreId, reason: ResetReason);

    /// Nothing more will be told of this store.
    fn store_closed(&mut self, store: StoreId);

    /// Whether what one feed tells of this worker is current from now on. Each call changes it for that feed.
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
    /// The connection was lost, and there is no replay to tell what was published meanwhile, nor by whom.
    ConnectionLost,
    /// A replay of everything the publisher still has follows, in place of what was known.
    Rebuild,
    /// A message that may have held removals could not be read.
    Undecodable,
    /// A message was larger than the limits, or broke the protocol: removals may have been in it.
    LimitExceeded,
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
            Self::ConnectionLost => "connection-lost",
            Self::Rebuild => "rebuild",
            Self::Undecodable => "undecodable",
            Self::LimitExceeded => "limit-exceeded",
            Self::FeedRemoved => "feed-removed",
        }
    }
}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
