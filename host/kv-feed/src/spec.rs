//! Feed specification, and the sink interface.

use std::fmt;

use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};

use crate::zmtp::CurveKeys;

/// A publisher to follow. Feeds with equal specs are the same feed for [`KvFeeds::replace`](crate::KvFeeds::replace).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedSpec {
    /// The worker whose caches the events describe.
    pub worker: WorkerId,
    /// The worker's name, for logs and status.
    pub name: Box<str>,
    /// Endpoint of the PUB socket.
    pub endpoint: Endpoint,
    /// Endpoint of the ROUTER socket for replays. Without it a gap resets the cache.
    pub replay: Option<String>,
    /// Prefix of the topics to receive; empty for all.
    pub topic: String,
    /// Rank of batches that do not name one; `None` for rank 0.
    pub rank: Option<DpRank>,
    /// Adapter of the blocks whose events name none, or only number it; `None` to take the events as they are.
    pub adapter: Option<Box<str>>,
    /// Keys of its CURVE sockets; `None` for unencrypted ones.
    pub curve: Option<CurveKeys>,
}

/// The publisher of a shared store. It has no replay: a lost message resets all its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSpec {
    /// The store whose objects the events describe.
    pub store: StoreId,
    /// The store's name, for logs and status.
    pub name: Box<str>,
    /// Endpoint of the PUB socket.
    pub endpoint: Endpoint,
    /// CURVE keys, as for [`FeedSpec::curve`].
    pub curve: Option<CurveKeys>,
}

/// An engine's or a store's feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FeedTarget {
    Engine(FeedSpec),
    Store(StoreSpec),
}

impl FeedTarget {
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

/// Meeting point of a publisher's PUB socket and our SUB socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The publisher binds it, for example `tcp://10.0.0.1:5557`; we connect.
    Connect(String),
    /// The publisher connects to it, for example `tcp://0.0.0.0:5557`; we bind. For one publisher only: its messages
    /// do not identify it.
    Bind(String),
}

impl Endpoint {
    /// Returns the address, whichever side binds it.
    #[must_use]
    pub fn address(&self) -> &str {
        match self {
            Self::Connect(address) | Self::Bind(address) => address,
        }
    }
}

/// Receiver of the feeds' events, on the feeds' thread. It should be quick: nothing is received meanwhile.
pub trait FeedSink: Send {
    /// Records a further feed of this worker. The feed is not live yet.
    fn opened(&mut self, worker: WorkerId);

    /// Records the end of a feed of this worker. The feed is not live any more, and all its caches were reset.
    fn closed(&mut self, worker: WorkerId);

    /// Delivers changes of one cache, in order.
    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]);

    /// Voids all earlier events of this cache.
    fn reset(&mut self, worker: WorkerId, rank: DpRank, reason: ResetReason);

    /// Delivers changes of a store's objects, in order.
    fn objects(&mut self, store: StoreId, events: &[ObjectEvent]);

    /// Voids all earlier events of this store.
    fn reset_store(&mut self, store: StoreId, reason: ResetReason);

    /// Records the end of the feed of this store.
    fn store_closed(&mut self, store: StoreId);

    /// Reports if one feed of this worker is current from now on. Each call reports a change.
    fn live(&mut self, worker: WorkerId, live: bool);
}

/// Reason why the known state of a cache is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetReason {
    /// The publisher restarted with an empty cache.
    Restarted,
    /// Messages were lost, and the publisher has no replay.
    GapWithoutReplay,
    /// Messages were lost, and the publisher no longer has them.
    GapNotReplayed,
    /// Messages were lost, and the publisher did not answer in time.
    ReplayTimedOut,
    /// The connection was lost, and without a replay the messages in between are unknown.
    ConnectionLost,
    /// A replay of everything the publisher still has follows and replaces the state.
    Rebuild,
    /// The contents that another router has at a later position follow and replace the state.
    Seeded,
    /// A message that may contain removals is unreadable.
    Undecodable,
    /// A message exceeded the limits or broke the protocol. It may contain removals.
    LimitExceeded,
    /// The feed was removed.
    FeedRemoved,
}

impl ResetReason {
    /// Returns the name used in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restarted => "restarted",
            Self::GapWithoutReplay => "gap-without-replay",
            Self::GapNotReplayed => "gap-not-replayed",
            Self::ReplayTimedOut => "replay-timed-out",
            Self::ConnectionLost => "connection-lost",
            Self::Rebuild => "rebuild",
            Self::Seeded => "seeded",
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
