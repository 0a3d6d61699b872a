//! The thread that serves all feeds: polls every socket, steps every feed that has something to do.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use routing::WorkerId;
use tracing::error;
use zmq::{POLLIN, Socket};

use crate::sockets::{Contexts, receive};
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
    pub(crate) contexts: Contexts,
    pub(crate) woken: Socket,
    pub(crate) orders: Arc<Mutex<Orders>>,
    pub(crate) sink: Box<dyn FeedSink>,
    pub(crate) subscriptions: Vec<Subscription>,
}

impl FeedThread {
    pub(crate) fn run(mut self) {
        let mut frames = Vec::new();
        loop {
            let ready = match self.poll() {
                Ok(ready) => ready,
                Err(zmq::Error::EINTR) => continue,
                Err(error) => {
                    error!(%error, "failed to poll for KV events: no feed is followed any more");
                    return self.set(Vec::new(), Instant::now());
                }
            };
            while receive(&self.woken, &mut frames).unwrap_or(false) {}
            let orders = std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner));
            if orders.stop {
                return;
            }
            let now = Instant::now();
            for (subscription, ready) in self.subscriptions.iter_mut().zip(ready) {
                if ready || subscription.deadline().is_some_and(|deadline| deadline <= now) {
                    subscription.step(&mut *self.sink, now);
                }
            }
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

    /// Waits for a message, an order or a deadline; answers which subscriptions have messages.
    fn poll(&self) -> zmq::Result<Vec<bool>> {
        let now = Instant::now();
        let deadline = self.subscriptions.iter().filter_map(Subscription::deadline).min();
        // Rounded up: waking a moment too early would only poll again.
        let timeout = deadline.map_or(-1, |deadline| {
            let wait = deadline.saturating_duration_since(now).as_millis();
            i64::try_from(wait).unwrap_or(i64::MAX).saturating_add(1)
        });
        let mut items = vec![self.woken.as_poll_item(POLLIN)];
        let mut owners = vec![None];
        for (owner, subscription) in self.subscriptions.iter().enumerate() {
            for socket in subscription.sockets() {
                items.push(socket.as_poll_item(POLLIN));
                owners.push(Some(owner));
            }
        }
        zmq::poll(&mut items, timeout)?;
        let mut ready = vec![false; self.subscriptions.len()];
        for owner in items
            .iter()
            .zip(owners)
            .filter_map(|(item, owner)| owner.filter(|_| item.is_readable()))
        {
            ready[owner] = true;
        }
        Ok(ready)
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
                let context = self.contexts.with_room();
                let mut subscription = Subscription::open(context, feed, counters, &mut *self.sink, now);
                subscription.step(&mut *self.sink, now);
                self.subscriptions.push(subscription);
            }
        }
        for subscription in ended {
            subscription.close(&mut *self.sink);
        }
        self.contexts.tidy();
    }
}
