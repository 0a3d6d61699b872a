//! Feeds into a sink that takes notes, and waiting for levels while a publisher is served.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use kv_feed::{FeedLimits, FeedSink, FeedStatus, KvFeeds, ResetReason};
use routing::{BlockEvent, DpRank, Lora, ObjectEvent, StoreId, WorkerId};

use crate::publisher::Publisher;

/// Notifications of a sink: the hashes of stored blocks, or a reset. Rank 0 is left out.
type Told = Vec<String>;

#[derive(Clone, Default)]
pub(crate) struct RecordedNotes(Arc<Mutex<Told>>, Arc<AtomicBool>, Gate, Threads);

/// Threads that gave events to the sink.
type Threads = Arc<Mutex<HashSet<ThreadId>>>;

/// While it is locked, nothing is taken in: the feeds' thread waits.
pub(crate) type Gate = Arc<Mutex<()>>;

impl RecordedNotes {
    fn add(&self, rank: DpRank, note: String) {
        let rank = if rank.0 == 0 {
            String::new()
        } else {
            format!("rank {}: ", rank.0)
        };
        self.0.lock().unwrap().push(rank + &note);
    }

    /// Takes a note of rank 0.
    pub(crate) fn note(&self, note: &str) {
        self.add(DpRank(0), note.to_owned());
    }

    /// Returns whether the feed was last reported as live.
    pub(crate) fn is_live(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    /// Returns how many threads gave events.
    pub(crate) fn threads(&self) -> usize {
        self.3.lock().unwrap().len()
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.2
    }

    pub(crate) fn all(&self) -> String {
        self.0.lock().unwrap().join(", ")
    }
}

impl FeedSink for RecordedNotes {
    fn opened(&mut self, worker: WorkerId) {
        assert_eq!(worker, WorkerId(1));
    }

    fn closed(&mut self, worker: WorkerId) {
        assert_eq!(worker, WorkerId(1));
    }

    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]) {
        assert_eq!(worker, WorkerId(1));
        drop(self.2.lock().unwrap());
        self.3.lock().unwrap().insert(thread::current().id());
        for event in events {
            let BlockEvent::Stored(stored) = event else {
                continue;
            };
            let adapter = stored.lora.as_ref().map(|lora| match lora {
                Lora::Name(name) => format!(" of {name}"),
                Lora::Id(id) => format!(" of number {id}"),
            });
            let hash = stored.hashes[0].0.to_string();
            self.add(rank, hash + &adapter.unwrap_or_default());
        }
    }

    fn reset(&mut self, _: WorkerId, rank: DpRank, reason: ResetReason) {
        self.add(rank, reason.to_string());
    }

    fn objects(&mut self, store: StoreId, events: &[ObjectEvent]) {
        assert_eq!(store, StoreId(1));
        for event in events {
            let note = match event {
                ObjectEvent::Stored { object, .. } => format!("stored {}", object.block.0),
                ObjectEvent::Removed { object, .. } => format!("removed {}", object.block.0),
                ObjectEvent::Cleared => "cleared".to_owned(),
            };
            self.add(DpRank(0), note);
        }
    }

    fn reset_store(&mut self, store: StoreId, reason: ResetReason) {
        assert_eq!(store, StoreId(1));
        self.add(DpRank(0), reason.to_string());
    }

    fn store_closed(&mut self, _: StoreId) {
        self.add(DpRank(0), "closed".to_owned());
    }

    fn live(&mut self, worker: WorkerId, live: bool) {
        assert_eq!(worker, WorkerId(1));
        self.1.store(live, Ordering::Relaxed);
    }
}

/// Feeds, and the notifications of their sink.
pub(crate) struct Fixture {
    pub(crate) feeds: KvFeeds,
    pub(crate) notes: RecordedNotes,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::within(FeedLimits::default())
    }

    /// Starts feeds that do not check for lost messages, however long a publisher is silent.
    pub(crate) fn within(limits: FeedLimits) -> Self {
        let notes = RecordedNotes::default();
        let silence = Duration::from_hours(1);
        Self {
            feeds: KvFeeds::start_with_first_check(silence, Box::new(notes.clone()), limits).unwrap(),
            notes,
        }
    }

    /// Starts feeds that check for lost messages after the usual time.
    pub(crate) fn checking() -> Self {
        let notes = RecordedNotes::default();
        Self {
            feeds: KvFeeds::start(Box::new(notes.clone()), FeedLimits::default()).unwrap(),
            notes,
        }
    }

    /// Starts feeds that follow a publisher.
    pub(crate) fn following(publisher: &mut Publisher) -> Self {
        Self::new().follows(publisher)
    }

    /// Follows a publisher and waits until it is subscribed to.
    pub(crate) fn follows(self, publisher: &mut Publisher) -> Self {
        self.feeds.replace(vec![publisher.spec()], Vec::new());
        publisher.await_subscriber();
        self
    }

    #[track_caller]
    pub(crate) fn received_events(&self, publisher: &mut Publisher, expected: &str) {
        eventually(
            publisher,
            || self.notes.all() == expected,
            || format!("{} instead of {expected}", self.notes.all()),
        );
    }

    pub(crate) fn status(&self) -> FeedStatus {
        self.feeds.status().remove(0)
    }

    #[track_caller]
    pub(crate) fn shows(&self, publisher: &mut Publisher, wanted: impl Fn(&FeedStatus) -> bool) {
        eventually(
            publisher,
            || wanted(&self.status()),
            || format!("{:?}", self.status()),
        );
    }
}

/// Serves the publisher until the level is reached.
#[track_caller]
pub(crate) fn eventually(publisher: &mut Publisher, reached: impl Fn() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !reached() {
        assert!(Instant::now() < deadline, "not reached in time: {}", state());
        publisher.serve();
    }
}
