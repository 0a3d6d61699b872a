//! What each feed is doing, as numbers that the feeds' thread writes and any thread may read without holding it up.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use routing::{DpRank, StoreId, WorkerId};

use crate::reason::{FeedReason, ReasonCell};
use crate::rejected::{FaultCounters, RejectCounters, Rejected};
use crate::spec::{FeedSpec, StoreSpec};

/// What a feed is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedState {
    /// Not connected, or nothing was received yet: the publisher is not up, not reachable, or idle and without a replay
    /// socket.
    Connecting,
    /// Following the publisher.
    Live,
    /// Following the publisher, and waiting for messages it missed or may have missed.
    Rebuilding,
    /// Not following: its sockets could not be opened (the log says why; it is tried again), or the feeds' thread ended.
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
    /// As in its spec; 0 where it gives none.
    pub rank: DpRank,
    /// What it is doing.
    pub state: FeedState,
    /// Whether everything since the publisher's start was seen: false means that hits are missed, not that any is wrong.
    pub complete: bool,
    /// Batches passed on.
    pub batches: u64,
    /// Events passed on.
    pub events: u64,
    /// Of those, stores.
    pub stored: u64,
    /// Of those, removals.
    pub removed: u64,
    /// Of those, that a whole cache is empty.
    pub cleared: u64,
    /// Times that messages were missing.
    pub gaps: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Times that the publisher was seen to have started anew.
    pub restarts: u64,
    /// Resets of a cache passed on.
    pub resets: u64,
    /// Times that the subscription was silent while replays brought messages.
    pub silences: u64,
    /// Events skipped as undecodable or not understood.
    pub rejected: Rejected,
    /// Messages dropped whole: wrong frames, or a payload that is no batch.
    pub rejected_messages: u64,
    /// Connections closed for what the publisher sent, by reason.
    pub refused: Rejected,
    /// The number of the latest message passed on; none before the first.
    pub last_seq: Option<u64>,
    /// Whether the publisher answers replays, so that its silence is looked into.
    pub answers: bool,
    /// Whether the publisher is connected and mute: it leaves a look unanswered, or its engine is known to work.
    pub silent: bool,
    /// Since the latest live message; none before the first.
    pub silent_for: Option<Duration>,
    /// From the engine's making of the latest live batch to its being passed on, by the two clocks; 0 where the engine's
    /// is ahead, none where it does not say.
    pub lag: Option<Duration>,
    /// Why it is in its state, since when, and what comes next.
    pub reason: FeedReason,
}

/// One store's feed at one moment. Counts are since the feed was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// As in its spec.
    pub store: StoreId,
    /// As in its spec.
    pub name: Box<str>,
    /// As in its spec.
    pub endpoint: String,
    /// What it is doing; never rebuilding, as a store repeats nothing.
    pub state: FeedState,
    /// Batches passed on.
    pub batches: u64,
    /// Objects that were stored.
    pub stored: u64,
    /// Objects that were removed.
    pub removed: u64,
    /// Times that messages were missing, or the connection was lost: each voided what was known.
    pub resets: u64,
    /// Events skipped as undecodable or not understood.
    pub rejected: Rejected,
    /// Messages dropped whole: wrong frames, or a payload that is no batch.
    pub rejected_messages: u64,
    /// Connections closed for what the publisher sent, by reason.
    pub refused: Rejected,
    /// The number of the latest message passed on; none before the first.
    pub last_seq: Option<u64>,
    /// Since the latest message; none before the first.
    pub silent_for: Option<Duration>,
    /// As for [`FeedStatus::lag`].
    pub lag: Option<Duration>,
    /// As for [`FeedStatus::reason`].
    pub reason: FeedReason,
}

/// The live counters of one feed; written by one thread.
#[derive(Debug)]
pub(crate) struct FeedCounters {
    pub(crate) batches: Count,
    pub(crate) events: Count,
    pub(crate) stored: Count,
    pub(crate) removed: Count,
    pub(crate) cleared: Count,
    pub(crate) gaps: Count,
    pub(crate) replays: Count,
    pub(crate) restarts: Count,
    pub(crate) resets: Count,
    pub(crate) silences: Count,
    pub(crate) rejected: RejectCounters,
    pub(crate) rejected_messages: Count,
    pub(crate) refused: FaultCounters,
    /// The latest number plus one: 0 before the first.
    next_seq: AtomicU64,
    state: AtomicU8,
    complete: AtomicBool,
    answers: AtomicBool,
    silent: AtomicBool,
    pub(crate) reason: ReasonCell,
    since: Instant,
    /// Microseconds plus one from `since` to the latest live message: 0 before the first.
    heard: AtomicU64,
    /// Microseconds plus one: 0 where it is not known.
    lag: AtomicU64,
}

impl Default for FeedCounters {
    fn default() -> Self {
        Self {
            batches: Count::default(),
            events: Count::default(),
            stored: Count::default(),
            removed: Count::default(),
            cleared: Count::default(),
            gaps: Count::default(),
            replays: Count::default(),
            restarts: Count::default(),
            resets: Count::default(),
            silences: Count::default(),
            rejected: RejectCounters::default(),
            rejected_messages: Count::default(),
            refused: FaultCounters::default(),
            next_seq: AtomicU64::default(),
            state: AtomicU8::default(),
            complete: AtomicBool::default(),
            answers: AtomicBool::default(),
            silent: AtomicBool::default(),
            reason: ReasonCell::default(),
            since: Instant::now(),
            heard: AtomicU64::default(),
            lag: AtomicU64::default(),
        }
    }
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
        let place = place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0);
        if self.state.swap(place, Relaxed) != place {
            self.reason.changed();
        }
    }

    pub(crate) fn set_progress(&self, last_seq: Option<u64>, complete: bool) {
        self.next_seq
            .store(last_seq.map_or(0, |last| last.saturating_add(1)), Relaxed);
        self.complete.store(complete, Relaxed);
    }

    pub(crate) fn set_silence(&self, answers: bool, silent: bool) {
        self.answers.store(answers, Relaxed);
        self.silent.store(silent, Relaxed);
    }

    /// A live message came.
    pub(crate) fn heard(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since);
        self.heard.store(micros(since).saturating_add(1), Relaxed);
    }

    pub(crate) fn set_lag(&self, lag: Option<Duration>) {
        let lag = lag.map_or(0, |lag| micros(lag).saturating_add(1));
        self.lag.store(lag, Relaxed);
    }

    /// The store's, of a thread that has ended or not.
    pub(crate) fn read_store(&self, spec: &StoreSpec, ended: bool) -> StoreStatus {
        StoreStatus {
            store: spec.store,
            name: spec.name.clone(),
            endpoint: spec.endpoint.address().to_owned(),
            state: self.state(ended),
            batches: self.batches.get(),
            stored: self.stored.get(),
            removed: self.removed.get(),
            resets: self.resets.get(),
            rejected: self.rejected.read(),
            rejected_messages: self.rejected_messages.get(),
            refused: self.refused.read(),
            last_seq: self.last_seq(),
            silent_for: self.silent_for(),
            lag: time(&self.lag),
            reason: self.reason.read(),
        }
    }

    fn state(&self, ended: bool) -> FeedState {
        if ended {
            return FeedState::Broken;
        }
        FeedState::ALL[usize::from(self.state.load(Relaxed)) % FeedState::ALL.len()]
    }

    fn last_seq(&self) -> Option<u64> {
        self.next_seq.load(Relaxed).checked_sub(1)
    }

    fn silent_for(&self) -> Option<Duration> {
        time(&self.heard).map(|heard| self.since.elapsed().saturating_sub(heard))
    }

    /// The engine's, of a thread that has ended or not.
    pub(crate) fn read(&self, spec: &FeedSpec, ended: bool) -> FeedStatus {
        FeedStatus {
            worker: spec.worker,
            name: spec.name.clone(),
            endpoint: spec.endpoint.address().to_owned(),
            rank: spec.rank.unwrap_or_default(),
            state: self.state(ended),
            complete: self.complete.load(Relaxed),
            batches: self.batches.get(),
            events: self.events.get(),
            stored: self.stored.get(),
            removed: self.removed.get(),
            cleared: self.cleared.get(),
            gaps: self.gaps.get(),
            replays: self.replays.get(),
            restarts: self.restarts.get(),
            resets: self.resets.get(),
            silences: self.silences.get(),
            rejected: self.rejected.read(),
            rejected_messages: self.rejected_messages.get(),
            refused: self.refused.read(),
            last_seq: self.last_seq(),
            answers: self.answers.load(Relaxed),
            silent: self.silent.load(Relaxed),
            silent_for: self.silent_for(),
            lag: time(&self.lag),
            reason: self.reason.read(),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn time(micros: &AtomicU64) -> Option<Duration> {
    micros.load(Relaxed).checked_sub(1).map(Duration::from_micros)
}
