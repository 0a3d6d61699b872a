//! The thread that serves all feeds: waits for what the I/O thread has read, and steps every feed that has something to do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use routing::WorkerId;

use crate::link::{Bell, Reader};
use crate::spec::{Feed, FeedSink};
use crate::status::FeedCounters;
use crate::subscription::Subscription;

/// A feed as it is asked for.
pub(crate) type Wanted = (Feed, Arc<FeedCounters>);

/// What the thread is asked to do. Only the latest list counts, so a single place for it bounds the queue.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) feeds: Option<Vec<Wanted>>,
    /// Workers whose silence is not to be believed.
    pub(crate) doubted: BTreeSet<WorkerId>,
    pub(crate) stop: bool,
}

pub(crate) struct FeedThread {
    pub(crate) reader: Arc<Reader>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) orders: Arc<Mutex<Orders>>,
    pub(crate) sink: Box<dyn FeedSink>,
    pub(crate) subscriptions: Vec<Subscription>,
}

impl FeedThread {
    pub(crate) fn run(mut self) {
        // Feeds whose turn ended before their notes did.
        let mut unfinished = BTreeSet::new();
        loop {
            let until = if unfinished.is_empty() {
                self.subscriptions.iter().filter_map(Subscription::deadline).min()
            } else {
                Some(Instant::now())
            };
            let mut rung = self.bell.wait(until);
            rung.feeds.append(&mut unfinished);
            let orders = std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner));
            if orders.stop {
                return;
            }
            if rung.is_pressed && self.reader.is_scarce() {
                self.subscriptions.iter_mut().for_each(Subscription::make_room);
            }
            self.step(&rung.feeds, &mut unfinished);
            let now = Instant::now();
            for subscription in &mut self.subscriptions {
                if let Feed::Engine(spec) = &subscription.feed
                    && orders.doubted.contains(&spec.worker)
                {
                    subscription.doubt(&mut *self.sink, now);
                }
            }
            if let Some(feeds) = orders.feeds {
                self.set(feeds, now);
            }
        }
    }

    /// Gives each feed that has something to do its turn.
    fn step(&mut self, ready: &BTreeSet<u64>, unfinished: &mut BTreeSet<u64>) {
        for subscription in &mut self.subscriptions {
            let now = Instant::now();
            let is_due = subscription.deadline().is_some_and(|deadline| deadline <= now);
            if is_due || ready.contains(&subscription.number) {
                subscription.step(&mut *self.sink, now);
            }
            if subscription.has_notes() {
                unfinished.insert(subscription.number);
            }
        }
    }

    /// Ends what is not wanted any more, keeps what is, opens the rest: in this order, so that a worker whose endpoint
    /// changed is reset before its new feed tells of it. What ended is closed last: that worker has a feed throughout.
    fn set(&mut self, wanted: Vec<Wanted>, now: Instant) {
        let known = |counters: &Arc<FeedCounters>, feeds: &[Wanted]| {
            feeds.iter().any(|(_, wanted)| Arc::ptr_eq(wanted, counters))
        };
        let (kept, mut ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.subscriptions)
            .into_iter()
            .partition(|subscription| known(&subscription.counters, &wanted));
        self.subscriptions = kept;
        for subscription in &mut ended {
            subscription.end(&mut *self.sink);
        }
        for (feed, counters) in wanted {
            let open = self
                .subscriptions
                .iter()
                .any(|open| Arc::ptr_eq(&open.counters, &counters));
            if !open {
                let reader = Arc::clone(&self.reader);
                let mut subscription = Subscription::open(reader, feed, counters, &mut *self.sink, now);
                subscription.step(&mut *self.sink, now);
                self.subscriptions.push(subscription);
            }
        }
        for subscription in ended {
            subscription.close(&mut *self.sink);
        }
    }
}
