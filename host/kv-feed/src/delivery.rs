//! Delivery of one feed's payloads to the sink: decoding, and resets.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kv_events::{DecodedPayload, decode_batch, decode_objects};
use routing::{BlockEvent, DpRank, Lora, ObjectEvent, StoreId, WorkerId};
use tracing::{info, warn};

use crate::spec::{FeedSink, FeedTarget, ResetReason};
use crate::status::{EventCounter, FeedCounters};
use crate::zmtp::Fault;

/// Most ranks of one publisher. Batches of further ranks are dropped as a malfunction.
const MAX_RANKS: usize = 1024;
/// Pause between two warnings of closed connections; counters include all.
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct FeedDelivery {
    counters: Arc<FeedCounters>,
    name: Box<str>,
    endpoint: String,
    subject: FeedSubject,
    /// An undecodable message was logged.
    warned: bool,
    /// Time of the last warning of a closed connection.
    warned_refused: Option<Instant>,
    announced_live: bool,
}

/// Effect of a payload on the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// No cache was emptied: earlier blocks stay, with the changes of the payload.
    Kept,
    /// The payload may have had removals that are unreadable, so at least one cache was emptied.
    Emptied,
}

/// Subject of the events, and its state since the last reset.
enum FeedSubject {
    Engine {
        worker: WorkerId,
        /// Rank of batches that do not name one.
        rank: DpRank,
        /// Adapter of blocks whose events do not name one.
        adapter: Option<Lora>,
        assert_actions: BTreeSet<DpRank>,
    },
    Store {
        store: StoreId,
        assert_actions: bool,
    },
}

impl FeedDelivery {
    pub(crate) fn new(feed: &FeedTarget, counters: Arc<FeedCounters>) -> Self {
        let subject = match feed {
            FeedTarget::Engine(spec) => FeedSubject::Engine {
                worker: spec.worker,
                rank: spec.rank.unwrap_or_default(),
                adapter: spec.adapter.as_deref().map(|name| Lora::Name(name.into())),
                assert_actions: BTreeSet::new(),
            },
            FeedTarget::Store(spec) => FeedSubject::Store {
                store: spec.store,
                assert_actions: false,
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
        if let FeedSubject::Engine { worker, .. } = self.subject {
            sink.opened(worker);
        }
    }

    /// Ends delivery: nothing keeps the delivered state up to date any more.
    pub(crate) fn end(&mut self, sink: &mut dyn FeedSink) {
        self.reset(sink, ResetReason::FeedRemoved);
        self.announce(sink, false);
    }

    /// Closes the subject, after [`FeedDelivery::end`].
    pub(crate) fn close(&self, sink: &mut dyn FeedSink) {
        match self.subject {
            FeedSubject::Engine { worker, .. } => sink.closed(worker),
            FeedSubject::Store { store, .. } => sink.store_closed(store),
        }
    }

    /// Delivers a payload. `is_current`: it is not part of a replay of the past.
    pub(crate) fn apply(&mut self, payload: &[u8], is_current: bool, sink: &mut dyn FeedSink) -> Applied {
        let applied = match self.subject {
            FeedSubject::Engine { worker, rank, .. } => decode_batch(payload)
                .map(|batch| self.blocks(worker, batch.dp_rank.unwrap_or(rank), batch, is_current, sink)),
            FeedSubject::Store { store, .. } => {
                decode_objects(payload).map(|batch| self.objects(store, &batch, is_current, sink))
            }
        };
        applied.unwrap_or_else(|error| {
            // The message may concern any cache of this publisher, and may contain removals.
            self.drop_message(&error);
            self.reset(sink, ResetReason::Undecodable);
            Applied::Emptied
        })
    }

    fn blocks(
        &mut self,
        worker: WorkerId,
        rank: DpRank,
        mut batch: DecodedPayload<BlockEvent>,
        is_current: bool,
        sink: &mut dyn FeedSink,
    ) -> Applied {
        if let FeedSubject::Engine {
            assert_actions,
            adapter,
            ..
        } = &mut self.subject
        {
            if assert_actions.len() >= MAX_RANKS && !assert_actions.contains(&rank) {
                self.drop_message(&"batch of one rank too many");
                return Applied::Kept;
            }
            assert_actions.insert(rank);
            if let Some(adapter) = adapter {
                name_adapter(&mut batch.events, adapter);
            }
        }
        sink.events(worker, rank, &batch.events);
        self.count(&batch, is_current, |counters, event| match event {
            BlockEvent::Stored(_) => &counters.stored,
            BlockEvent::Removed(_) => &counters.removed,
            BlockEvent::Cleared => &counters.cleared,
        });
        if !batch.rejected.hides_removal() {
            return Applied::Kept;
        }
        self.reset_rank(worker, rank, ResetReason::Undecodable, sink);
        Applied::Emptied
    }

    fn objects(
        &mut self,
        store: StoreId,
        batch: &DecodedPayload<ObjectEvent>,
        is_current: bool,
        sink: &mut dyn FeedSink,
    ) -> Applied {
        if let FeedSubject::Store { assert_actions, .. } = &mut self.subject {
            *assert_actions = true;
        }
        sink.objects(store, &batch.events);
        self.count(batch, is_current, |counters, event| match event {
            ObjectEvent::Stored { .. } => &counters.stored,
            ObjectEvent::Removed { .. } => &counters.removed,
            ObjectEvent::Cleared => &counters.cleared,
        });
        if !batch.rejected.hides_removal() {
            return Applied::Kept;
        }
        self.reset(sink, ResetReason::Undecodable);
        Applied::Emptied
    }

    /// Counts a delivered batch: readers of the counters can rely on its effects.
    fn count<E>(
        &mut self,
        batch: &DecodedPayload<E>,
        is_current: bool,
        of_kind: impl for<'a> Fn(&'a FeedCounters, &E) -> &'a EventCounter,
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
        match &mut self.subject {
            FeedSubject::Engine {
                worker,
                assert_actions,
                ..
            } => {
                let worker = *worker;
                for rank in std::mem::take(assert_actions) {
                    self.reset_rank(worker, rank, reason, sink);
                }
            }
            FeedSubject::Store {
                store,
                assert_actions,
            } => {
                if std::mem::take(assert_actions) {
                    sink.reset_store(*store, reason);
                    self.counters.resets.add(1);
                    info!(store = %self.name, %reason, "invalidated the known contents of a store");
                }
            }
        }
        if reason == ResetReason::Restarted {
            self.counters.restarts.add(1);
        }
    }

    /// Returns the ranks that events were delivered of.
    pub(crate) fn ranks(&self) -> Vec<DpRank> {
        match &self.subject {
            FeedSubject::Engine { assert_actions, .. } => assert_actions.iter().copied().collect(),
            FeedSubject::Store { .. } => Vec::new(),
        }
    }

    /// Empties all caches for a seed of these ranks. Returns `false` if there are too many; nothing changes then.
    pub(crate) fn seed(&mut self, ranks: &[DpRank], sink: &mut dyn FeedSink) -> bool {
        if ranks.len() > MAX_RANKS {
            return false;
        }
        self.reset(sink, ResetReason::Seeded);
        if let FeedSubject::Engine { assert_actions, .. } = &mut self.subject {
            assert_actions.extend(ranks);
        }
        true
    }

    fn reset_rank(&mut self, worker: WorkerId, rank: DpRank, reason: ResetReason, sink: &mut dyn FeedSink) {
        if let FeedSubject::Engine { assert_actions, .. } = &mut self.subject {
            assert_actions.remove(&rank);
        }
        sink.reset(worker, rank, reason);
        self.counters.resets.add(1);
        info!(worker = %self.name, rank = rank.0, %reason, "invalidated the known contents of a KV cache");
    }

    /// Reports whether the delivered state is current.
    pub(crate) fn announce(&mut self, sink: &mut dyn FeedSink, live: bool) {
        if self.announced_live != live {
            self.announced_live = live;
            if let FeedSubject::Engine { worker, .. } = self.subject {
                sink.live(worker, live);
            }
        }
    }

    pub(crate) fn drop_message(&mut self, why: &dyn Display) {
        self.counters.rejected_messages.add(1);
        self.warn_once(why);
    }

    /// Logs a connection closed for a protocol error, at most once a minute.
    pub(crate) fn warn_refused(&mut self, fault: Fault, consequence: &str, now: Instant) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < WARN_EVERY;
        if self.warned_refused.is_some_and(is_recent) {
            return;
        }
        self.warned_refused = Some(now);
        warn!(
            feed = %self.name, endpoint = self.endpoint, reason = fault.label(), error = %fault,
            "closed a connection to a publisher of KV events: {consequence}"
        );
    }

    /// Logs only the first sample: a publisher of another version would fill the log. Counters include the rest.
    pub(crate) fn warn_once(&mut self, why: &dyn Display) {
        if !self.warned {
            self.warned = true;
            warn!(feed = %self.name, endpoint = self.endpoint, %why, "skipped KV events (further ones are only counted)");
        }
    }
}

/// Sets the adapter of the stored blocks that have no adapter's name.
fn name_adapter(events: &mut [BlockEvent], adapter: &Lora) {
    for event in events {
        if let BlockEvent::Stored(stored) = event
            && !matches!(stored.lora, Some(Lora::Name(_)))
        {
            stored.lora = Some(adapter.clone());
        }
    }
}

/// Returns the age of a time in milliseconds after the Unix epoch; 0 for a future one.
fn age(ts_ms: f64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let made = Duration::try_from_secs_f64(ts_ms / 1000.0).ok()?;
    Some(now.saturating_sub(made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Endpoint, FeedSpec, StoreSpec};

    /// Sink that records the batches and resets that are counted when it is called.
    struct CountsAtCalls {
        spec: StoreSpec,
        counters: Arc<FeedCounters>,
        seen: Vec<(u64, u64)>,
    }

    impl CountsAtCalls {
        fn called(&mut self) {
            let status = self.counters.read_store(&self.spec, false);
            self.seen.push((status.batches, status.resets));
        }
    }

    impl FeedSink for CountsAtCalls {
        fn opened(&mut self, _: WorkerId) {}
        fn closed(&mut self, _: WorkerId) {}
        fn live(&mut self, _: WorkerId, _: bool) {}
        fn store_closed(&mut self, _: StoreId) {}
        fn events(&mut self, _: WorkerId, _: DpRank, _: &[BlockEvent]) {
            self.called();
        }
        fn reset(&mut self, _: WorkerId, _: DpRank, _: ResetReason) {
            self.called();
        }
        fn objects(&mut self, _: StoreId, _: &[ObjectEvent]) {
            self.called();
        }
        fn reset_store(&mut self, _: StoreId, _: ResetReason) {
            self.called();
        }
    }

    fn batch<E>(event: E) -> DecodedPayload<E> {
        DecodedPayload {
            ts_ms: None,
            dp_rank: None,
            events: vec![event],
            rejected: kv_events::RejectedEvents::default(),
        }
    }

    #[test]
    fn a_batch_and_a_reset_are_counted_once_they_have_their_effect() {
        let endpoint = Endpoint::Connect("tcp://127.0.0.1:1".to_owned());
        let store = StoreSpec {
            store: StoreId(1),
            name: "store".into(),
            endpoint: endpoint.clone(),
            curve: None,
        };
        let engine = FeedSpec {
            worker: WorkerId(1),
            name: "w1".into(),
            endpoint,
            replay: None,
            topic: String::new(),
            rank: None,
            adapter: None,
            curve: None,
        };
        for target in [FeedTarget::Store(store.clone()), FeedTarget::Engine(engine)] {
            let counters = Arc::<FeedCounters>::default();
            let mut sink = CountsAtCalls {
                spec: store.clone(),
                counters: Arc::clone(&counters),
                seen: Vec::new(),
            };
            let mut delivery = FeedDelivery::new(&target, Arc::clone(&counters));
            match target {
                FeedTarget::Store(_) => {
                    delivery.objects(StoreId(1), &batch(ObjectEvent::Cleared), true, &mut sink)
                }
                FeedTarget::Engine(_) => delivery.blocks(
                    WorkerId(1),
                    DpRank(0),
                    batch(BlockEvent::Cleared),
                    true,
                    &mut sink,
                ),
            };
            delivery.reset(&mut sink, ResetReason::ConnectionLost);
            assert_eq!(sink.seen, [(0, 0), (1, 0)]);
            let status = counters.read_store(&store, false);
            assert_eq!((status.batches, status.resets), (1, 1));
        }
    }
}
