//! Feeds' thread: waits for notes of the I/O thread, and steps every feed that has work.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use routing::WorkerId;

use crate::link::{FeedNotifier, LinkReader};
use crate::seed::{FeedSeed, ReadContents};
use crate::spec::{FeedSink, FeedTarget};
use crate::status::FeedCounters;
use crate::subscription::FeedSubscription;

/// A requested feed and its counters.
pub(crate) type WantedFeed = (FeedTarget, Arc<FeedCounters>);

/// Command for the contents of one feed, which its counters identify.
pub(crate) struct ContentsCommand {
    pub(crate) feed: Arc<FeedCounters>,
    pub(crate) work: ContentsWork,
}

/// Work on the contents of a feed.
pub(crate) enum ContentsWork {
    Read(ReadContents),
    Seed(FeedSeed),
}

/// Most commands for contents that wait.
pub(crate) const MOST_CONTENTS: usize = 64;

/// Commands for the thread. Only the latest feed list counts, so one slot bounds the queue.
#[derive(Default)]
pub(crate) struct Commands {
    pub(crate) feeds: Option<Vec<WantedFeed>>,
    /// Workers whose silent feeds are suspect.
    pub(crate) suspects: BTreeSet<WorkerId>,
    /// At most [`MOST_CONTENTS`].
    pub(crate) contents: Vec<ContentsCommand>,
    pub(crate) stop: bool,
}

pub(crate) struct FeedThread {
    pub(crate) reader: Arc<LinkReader>,
    pub(crate) notifier: Arc<FeedNotifier>,
    pub(crate) commands: Arc<Mutex<Commands>>,
    pub(crate) sink: Box<dyn FeedSink>,
    /// Delay of the first check of a silent publisher.
    pub(crate) first_check: Duration,
    pub(crate) subscriptions: Vec<FeedSubscription>,
}

impl FeedThread {
    pub(crate) fn run(mut self) {
        // Feeds whose slice ended before their notes did.
        let mut unfinished = BTreeSet::new();
        loop {
            let until = if unfinished.is_empty() {
                self.subscriptions
                    .iter()
                    .filter_map(FeedSubscription::deadline)
                    .min()
            } else {
                Some(Instant::now())
            };
            let mut woken = self.notifier.wait(until);
            woken.feeds.append(&mut unfinished);
            let commands = std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner));
            if commands.stop {
                return;
            }
            if woken.is_pressed && self.reader.is_scarce() {
                self.subscriptions
                    .iter_mut()
                    .for_each(FeedSubscription::make_room);
            }
            self.step(&woken.feeds, &mut unfinished);
            let now = Instant::now();
            for subscription in &mut self.subscriptions {
                if let FeedTarget::Engine(spec) = &subscription.feed
                    && commands.suspects.contains(&spec.worker)
                {
                    subscription.mark_suspect(&mut *self.sink, now);
                }
            }
            if let Some(feeds) = commands.feeds {
                self.set(feeds, now);
            }
            for command in commands.contents {
                self.work_on(command, now);
            }
        }
    }

    /// Runs one slice of each feed that has work.
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

    /// Reads or seeds the contents of a feed that is still followed.
    fn work_on(&mut self, ContentsCommand { feed, work }: ContentsCommand, now: Instant) {
        let mut open = self.subscriptions.iter_mut();
        let Some(subscription) = open.find(|open| Arc::ptr_eq(&open.counters, &feed)) else {
            return;
        };
        match work {
            ContentsWork::Read(read) => subscription.read_contents(read),
            ContentsWork::Seed(seed) => subscription.seed(seed, &mut *self.sink, now),
        }
    }

    /// Closes removed feeds, keeps unchanged ones, opens new ones. In this order a worker with a new endpoint is reset
    /// before its new feed delivers. Removed feeds are closed last, so that worker has a feed throughout.
    fn set(&mut self, wanted: Vec<WantedFeed>, now: Instant) {
        let known = |counters: &Arc<FeedCounters>, feeds: &[WantedFeed]| {
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
                let (first_check, sink) = (self.first_check, &mut *self.sink);
                let mut subscription = FeedSubscription::open(reader, feed, counters, first_check, sink, now);
                subscription.step(&mut *self.sink, now);
                self.subscriptions.push(subscription);
            }
        }
        for subscription in ended {
            subscription.close(&mut *self.sink);
        }
    }
}
