//! What one feed tells the sink: payloads decoded, and resets of what they were about.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kv_events::{Decoded, decode_batch, decode_objects};
use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};
use tracing::{info, warn};

use crate::spec::{Feed, FeedSink, ResetReason};
use crate::status::{Count, FeedCounters};
use crate::zmtp::Fault;

/// Ranks one publisher may name. Batches of further ones are dropped: they would be a malfunction.
const MAX_RANKS: usize = 1024;
/// Between two warnings of connections that were closed; the counters have all.
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Delivery {
    counters: Arc<FeedCounters>,
    name: Box<str>,
    endpoint: String,
    subject: Subject,
    /// Whether something undecodable was already logged.
    warned: bool,
    /// When a closed connection was logged last.
    warned_refused: Option<Instant>,
    announced_live: bool,
}

/// What is told of, and what of that since the last reset.
enum Subject {
    Engine {
        worker: WorkerId,
        /// Of batches that name none.
        rank: DpRank,
        told: BTreeSet<DpRank>,
    },
    Store {
        store: StoreId,
        told: bool,
    },
}

impl Delivery {
    pub(crate) fn new(feed: &Feed, counters: Arc<FeedCounters>) -> Self {
        let subject = match feed {
            Feed::Engine(spec) => Subject::Engine {
                worker: spec.worker,
                rank: spec.rank.unwrap_or_default(),
                told: BTreeSet::new(),
            },
            Feed::Store(spec) => Subject::Store {
                store: spec.store,
                told: false,
            },
        };
        Self {
            counters,
            name: feed.name().into(),
            endpoint: feed.endpoint().address().to_owned(),
            subject,
            warned: false,
            warned_refused: None,
            announced_live: false,
        }
    }

    pub(crate) fn open(&self, sink: &mut dyn FeedSink) {
        if let Subject::Engine { worker, .. } = self.subject {
            sink.opened(worker);
        }
    }

    /// Nothing keeps what was told up to date any more.
    pub(crate) fn end(&mut self, sink: &mut dyn FeedSink) {
        self.reset(sink, ResetReason::FeedRemoved);
        self.announce(sink, false);
    }

    /// After [`Delivery::end`].
    pub(crate) fn close(&self, sink: &mut dyn FeedSink) {
        match self.subject {
            Subject::Engine { worker, .. } => sink.closed(worker),
            Subject::Store { store, .. } => sink.store_closed(store),
        }
    }

    /// Passes a payload on. `is_current`: it is not of a past that is being replayed.
    pub(crate) fn apply(&mut self, payload: &[u8], is_current: bool, sink: &mut dyn FeedSink) {
        let told = match self.subject {
            Subject::Engine { worker, rank, .. } => decode_batch(payload)
                .map(|batch| self.blocks(worker, batch.dp_rank.unwrap_or(rank), &batch, is_current, sink)),
            Subject::Store { store, .. } => {
                decode_objects(payload).map(|batch| self.objects(store, &batch, is_current, sink))
            }
        };
        if let Err(error) = told {
            // Any cache of this publisher may have been meant, and removals may have been in it.
            self.drop_message(&error);
            self.reset(sink, ResetReason::Undecodable);
        }
    }

    fn blocks(
        &mut self,
        worker: WorkerId,
        rank: DpRank,
        batch: &Decoded<BlockEvent>,
        is_current: bool,
        sink: &mut dyn FeedSink,
    ) {
        if let Subject::Engine { told, .. } = &mut self.subject {
            if told.len() >= MAX_RANKS && !told.contains(&rank) {
                return self.drop_message(&"batch of one rank too many");
            }
            told.insert(rank);
        }
        self.count(batch, is_current, |counters, event| match event {
            BlockEvent::Stored(_) => &counters.stored,
            BlockEvent::Removed(_) => &counters.removed,
            BlockEvent::Cleared => &counters.cleared,
        });
        sink.events(worker, rank, &batch.events);
        if batch.rejected.hides_removal() {
            self.reset_rank(worker, rank, ResetReason::Undecodable, sink);
        }
    }

    fn objects(
        &mut self,
        store: StoreId,
        batch: &Decoded<ObjectEvent>,
        is_current: bool,
        sink: &mut dyn FeedSink,
    ) {
        if let Subject::Store { told, .. } = &mut self.subject {
            *told = true;
        }
        self.count(batch, is_current, |counters, event| match event {
            ObjectEvent::Stored { .. } => &counters.stored,
            ObjectEvent::Removed { .. } => &counters.removed,
            ObjectEvent::Cleared => &counters.cleared,
        });
        sink.objects(store, &batch.events);
        if batch.rejected.hides_removal() {
            self.reset(sink, ResetReason::Undecodable);
        }
    }

    fn count<E>(
        &mut self,
        batch: &Decoded<E>,
        is_current: bool,
        of_kind: impl for<'a> Fn(&'a FeedCounters, &E) -> &'a Count,
    ) {
        let counters = &*self.counters;
        counters.batches.add(1);
        counters.events.add(batch.events.len());
        for (reason, events) in batch.rejected.by_reason() {
            counters.rejected.add(reason, events as u64);
        }
        for event in &batch.events {
            of_kind(counters, event).add(1);
        }
        if is_current {
            counters.set_lag(batch.ts_ms.and_then(age));
        }
        if let Some(rejected) = batch.rejected.samples().first() {
            self.warn_once(&rejected.reason);
        }
    }

    pub(crate) fn reset(&mut self, sink: &mut dyn FeedSink, reason: ResetReason) {
        if reason == ResetReason::Restarted {
            self.counters.restarts.add(1);
        }
        match &mut self.subject {
            Subject::Engine { worker, told, .. } => {
                let worker = *worker;
                for rank in std::mem::take(told) {
                    self.reset_rank(worker, rank, reason, sink);
                }
            }
            Subject::Store { store, told } => {
                if std::mem::take(told) {
                    self.counters.resets.add(1);
                    info!(store = %self.name, %reason, "dropped what was known of a store");
                    sink.reset_store(*store, reason);
                }
            }
        }
    }

    fn reset_rank(&mut self, worker: WorkerId, rank: DpRank, reason: ResetReason, sink: &mut dyn FeedSink) {
        if let Subject::Engine { told, .. } = &mut self.subject {
            told.remove(&rank);
        }
        self.counters.resets.add(1);
        info!(worker = %self.name, rank = rank.0, %reason, "dropped what was known of a KV cache");
        sink.reset(worker, rank, reason);
    }

    /// Whether what was told is current.
    pub(crate) fn announce(&mut self, sink: &mut dyn FeedSink, live: bool) {
        if self.announced_live != live {
            self.announced_live = live;
            if let Subject::Engine { worker, .. } = self.subject {
                sink.live(worker, live);
            }
        }
    }

    pub(crate) fn drop_message(&mut self, why: &dyn Display) {
        self.counters.rejected_messages.add(1);
        self.warn_once(why);
    }

    /// Logs that a connection was closed for what the publisher sent, once a minute.
    pub(crate) fn warn_refused(&mut self, fault: Fault, now: Instant) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < WARN_EVERY;
        if self.warned_refused.is_some_and(is_recent) {
            return;
        }
        self.warned_refused = Some(now);
        warn!(
            feed = %self.name, endpoint = self.endpoint, reason = fault.label(), error = %fault,
            "closed a connection to a publisher of KV events: what it told is void, and it is connected to again after a pause"
        );
    }

    /// The first sample only: a publisher of another version would fill the log. The counters tell the rest.
    pub(crate) fn warn_once(&mut self, why: &dyn Display) {
        if !self.warned {
            self.warned = true;
            warn!(feed = %self.name, endpoint = self.endpoint, %why, "skipped KV events (further ones are only counted)");
        }
    }
}

/// Since a time in milliseconds after the Unix epoch; 0 for one that is still to come.
fn age(ts_ms: f64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let made = Duration::try_from_secs_f64(ts_ms / 1000.0).ok()?;
    Some(now.saturating_sub(made))
}
