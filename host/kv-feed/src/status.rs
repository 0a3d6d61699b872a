//! Status of each feed: counters written by the feeds' thread and read by any thread without blocking it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use routing::{DpRank, StoreId, WorkerId};

use crate::reason::{FeedReason, ReasonCell};
use crate::rejected::{FaultCounters, RejectCounters, Rejected};
use crate::spec::{FeedSpec, StoreSpec};

/// State of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedState {
    /// Not connected, or nothing received yet: the publisher is not up, not reachable, or idle and without a replay
    /// socket.
    Connecting,
    /// Receives the publisher's messages.
    Live,
    /// Receives messages, but waits for messages that it missed or may have missed.
    Rebuilding,
    /// Not following: its sockets could not be opened (the log has the reason, and it is retried), or the feeds'
    /// thread ended.
    Broken,
}

impl FeedState {
    const ALL: [Self; 4] = [Self::Connecting, Self::Live, Self::Rebuilding, Self::Broken];

    /// Returns the name used in logs and metrics.
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

/// Status of one feed at one moment. Counts start when the feed is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStatus {
    /// Worker, as in its spec.
    pub worker: WorkerId,
    /// Name, as in its spec.
    pub name: Box<str>,
    /// Endpoint, as in its spec.
    pub endpoint: String,
    /// Rank, as in its spec; 0 if it has none.
    pub rank: DpRank,
    /// State of the feed.
    pub state: FeedState,
    /// Set if everything since the publisher's start was received and read. Otherwise hits may be missing, but none are
    /// wrong.
    pub complete: bool,
    /// The publisher has a replay socket.
    pub can_replay: bool,
    /// Number of the oldest message since which everything was received and read.
    pub known_from: Option<u64>,
    /// Delivered batches.
    pub batches: u64,
    /// Delivered events.
    pub events: u64,
    /// Stores among those.
    pub stored: u64,
    /// Removals among those.
    pub removed: u64,
    /// Clears of a whole cache among those.
    pub cleared: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Requested replays.
    pub replays: u64,
    /// Detected restarts of the publisher.
    pub restarts: u64,
    /// Delivered resets of a cache.
    pub resets: u64,
    /// Times that the subscription was silent while replays delivered messages.
    pub silences: u64,
    /// Rejected events.
    pub rejected: Rejected,
    /// Messages dropped whole: wrong frames, or a payload that is not a batch.
    pub rejected_messages: u64,
    /// Connections closed for protocol errors of the publisher, by reason.
    pub refused: Rejected,
    /// Number of the latest delivered message.
    pub last_seq: Option<u64>,
    /// The publisher answers replays, so its silence is checked.
    pub answers: bool,
    /// The publisher is connected but silent: it does not answer a check, or its engine is known to work.
    pub silent: bool,
    /// Time since the latest live message.
    pub silent_for: Option<Duration>,
    /// Time from the creation of the latest live batch to its delivery, by the two clocks. 0 if the engine's clock is
    /// ahead, `None` if the batch has no time.
    pub lag: Option<Duration>,
    /// Reason of the state, its duration and the next retry.
    pub reason: FeedReason,
}

/// Status of one store's feed at one moment. Counts start when the feed is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// Store, as in its spec.
    pub store: StoreId,
    /// Name, as in its spec.
    pub name: Box<str>,
    /// Endpoint, as in its spec.
    pub endpoint: String,
    /// State of the feed; never rebuilding, as a store has no replay.
    pub state: FeedState,
    /// Delivered batches.
    pub batches: u64,
    /// Stored objects.
    pub stored: u64,
    /// Removed objects.
    pub removed: u64,
    /// Gaps and lost connections; each one resets the store.
    pub resets: u64,
    /// Rejected events.
    pub rejected: Rejected,
    /// Messages dropped whole: wrong frames, or a payload that is not a batch.
    pub rejected_messages: u64,
    /// Connections closed for protocol errors of the publisher, by reason.
    pub refused: Rejected,
    /// Number of the latest delivered message.
    pub last_seq: Option<u64>,
    /// Time since the latest message.
    pub silent_for: Option<Duration>,
    /// Lag, as for [`FeedStatus::lag`].
    pub lag: Option<Duration>,
    /// Reason, as for [`FeedStatus::reason`].
    pub reason: FeedReason,
}

/// Current counters of one feed; written by one thread.
#[derive(Debug)]
pub(crate) struct FeedCounters {
    pub(crate) batches: EventCounter,
    pub(crate) events: EventCounter,
    pub(crate) stored: EventCounter,
    pub(crate) removed: EventCounter,
    pub(crate) cleared: EventCounter,
    pub(crate) gaps: EventCounter,
    pub(crate) replays: EventCounter,
    pub(crate) restarts: EventCounter,
    pub(crate) resets: EventCounter,
    pub(crate) silences: EventCounter,
    pub(crate) rejected: RejectCounters,
    pub(crate) rejected_messages: EventCounter,
    pub(crate) refused: FaultCounters,
    /// The latest number plus one; 0 before the first.
    next_seq: AtomicU64,
    state: AtomicU8,
    /// Number of the oldest known message plus one; 0 before the first.
    known_from: AtomicU64,
    answers: AtomicBool,
    silent: AtomicBool,
    pub(crate) reason: ReasonCell,
    since: Instant,
    /// Microseconds plus one from `since` to the latest live message; 0 before the first.
    received: AtomicU64,
    /// Microseconds plus one; 0 if unknown.
    lag: AtomicU64,
}

impl Default for FeedCounters {
    fn default() -> Self {
        Self {
            batches: EventCounter::default(),
            events: EventCounter::default(),
            stored: EventCounter::default(),
            removed: EventCounter::default(),
            cleared: EventCounter::default(),
            gaps: EventCounter::default(),
            replays: EventCounter::default(),
            restarts: EventCounter::default(),
            resets: EventCounter::default(),
            silences: EventCounter::default(),
            rejected: RejectCounters::default(),
            rejected_messages: EventCounter::default(),
            refused: FaultCounters::default(),
            next_seq: AtomicU64::default(),
            state: AtomicU8::default(),
            known_from: AtomicU64::default(),
            answers: AtomicBool::default(),
            silent: AtomicBool::default(),
            reason: ReasonCell::default(),
            since: Instant::now(),
            received: AtomicU64::default(),
            lag: AtomicU64::default(),
        }
    }
}

/// Monotonic counter.
#[derive(Debug, Default)]
pub(crate) struct EventCounter(AtomicU64);

impl EventCounter {
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

    pub(crate) fn set_progress(&self, last_seq: Option<u64>, known_from: Option<u64>) {
        let after = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
        self.next_seq.store(after(last_seq), Relaxed);
        self.known_from.store(after(known_from), Relaxed);
    }

    pub(crate) fn set_silence(&self, answers: bool, silent: bool) {
        self.answers.store(answers, Relaxed);
        self.silent.store(silent, Relaxed);
    }

    /// Records a live message.
    pub(crate) fn received(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since);
        self.received.store(micros(since).saturating_add(1), Relaxed);
    }

    pub(crate) fn set_lag(&self, lag: Option<Duration>) {
        let lag = lag.map_or(0, |lag| micros(lag).saturating_add(1));
        self.lag.store(lag, Relaxed);
    }

    /// Returns the status of a store's feed. `ended`: the feeds' thread has ended.
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

    fn known_from(&self) -> Option<u64> {
        self.known_from.load(Relaxed).checked_sub(1)
    }

    fn silent_for(&self) -> Option<Duration> {
        time(&self.received).map(|received| self.since.elapsed().saturating_sub(received))
    }

    /// Returns the status of an engine's feed. `ended`: the feeds' thread has ended.
    pub(crate) fn read(&self, spec: &FeedSpec, ended: bool) -> FeedStatus {
        FeedStatus {
            worker: spec.worker,
            name: spec.name.clone(),
            endpoint: spec.endpoint.address().to_owned(),
            rank: spec.rank.unwrap_or_default(),
            state: self.state(ended),
            complete: self.known_from() == Some(0),
            can_replay: spec.replay.is_some(),
            known_from: self.known_from(),
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
