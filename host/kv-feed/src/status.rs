//! What each feed is doing, as numbers that the feeds' thread writes and any thread may read without holding it up.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use routing::WorkerId;

use crate::spec::FeedSpec;

/// What a feed is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedState {
    /// Nothing was ever received: the publisher is not up, not reachable, or idle and without a replay socket.
    Connecting,
    /// Following the publisher.
    Live,
    /// Following the publisher, and waiting for messages it missed.
    Rebuilding,
    /// Not following: its sockets could not be opened (the log says why), or the feeds' thread has ended.
    Broken,
}

impl FeedState {
    const ALL: [Self; 4] = [Self::Connecting, Self::Live, Self::Rebuilding, Self::Broken];

    /// Its name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Rebuilding => "rebuilding",
            Self::Broken => "broken",
        }
    }
}

/// One feed at one moment. Counts are since the feed was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStatus {
    /// As in its spec.
    pub worker: WorkerId,
    /// As in its spec.
    pub name: Box<str>,
    /// As in its spec.
    pub endpoint: String,
    /// What it is doing.
    pub state: FeedState,
    /// Whether everything since the publisher's start was seen: false means that hits are missed, not that any is wrong.
    pub complete: bool,
    /// Batches passed on.
    pub batches: u64,
    /// Events passed on.
    pub events: u64,
    /// Times that messages were missing.
    pub gaps: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Times that the publisher was seen to have started anew.
    pub restarts: u64,
    /// Resets of a cache passed on.
    pub resets: u64,
    /// Events skipped as undecodable or not understood.
    pub rejected: u64,
    /// Messages dropped whole: wrong frames, or a payload that is no batch.
    pub rejected_messages: u64,
    /// The number of the latest message passed on; none before the first.
    pub last_seq: Option<u64>,
}

/// The live counters of one feed; written by one thread.
#[derive(Debug, Default)]
pub(crate) struct FeedCounters {
    pub(crate) batches: Count,
    pub(crate) events: Count,
    pub(crate) gaps: Count,
    pub(crate) replays: Count,
    pub(crate) restarts: Count,
    pub(crate) resets: Count,
    pub(crate) rejected: Count,
    pub(crate) rejected_messages: Count,
    /// The latest number plus one: 0 before the first.
    next_seq: AtomicU64,
    state: AtomicU8,
    complete: AtomicBool,
}

/// A number that only goes up.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl FeedCounters {
    pub(crate) fn set_state(&self, state: FeedState) {
        let place = FeedState::ALL.iter().position(|&known| known == state);
        self.state.store(
            place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0),
            Relaxed,
        );
    }

    pub(crate) fn set_progress(&self, last_seq: Option<u64>, complete: bool) {
        self.next_seq
            .store(last_seq.map_or(0, |last| last.saturating_add(1)), Relaxed);
        self.complete.store(complete, Relaxed);
    }

    pub(crate) fn read(&self, spec: &FeedSpec) -> FeedStatus {
        FeedStatus {
            worker: spec.worker,
            name: spec.name.clone(),
            endpoint: spec.endpoint.clone(),
            state: FeedState::ALL[usize::from(self.state.load(Relaxed)) % FeedState::ALL.len()],
            complete: self.complete.load(Relaxed),
            batches: self.batches.get(),
            events: self.events.get(),
            gaps: self.gaps.get(),
            replays: self.replays.get(),
            restarts: self.restarts.get(),
            resets: self.resets.get(),
            rejected: self.rejected.get(),
            rejected_messages: self.rejected_messages.get(),
            last_seq: self.next_seq.load(Relaxed).checked_sub(1),
        }
    }
}
