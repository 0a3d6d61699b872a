//! Joins the event feeds to the index: the one place that knows both.

use std::sync::Arc;

use kv_feed::{FeedSink, ResetReason};
use kv_index::{Holder, SharedPrefixIndex};
use proxy::LiveFeeds;
use routing::{BlockEvent, DpRank, WorkerId};

/// Applies what feeds deliver to the index. Runs on the feed thread.
pub(crate) struct IndexFeed {
    index: Arc<SharedPrefixIndex>,
    live: Arc<LiveFeeds>,
}

impl IndexFeed {
    /// A sink into `index` that tells the request path which workers it knows of.
    #[must_use]
    pub(crate) fn new(index: Arc<SharedPrefixIndex>, live: Arc<LiveFeeds>) -> Self {
        Self { index, live }
    }
}

impl FeedSink for IndexFeed {
    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]) {
        let holder = Holder { worker, rank };
        for event in events {
            self.index.apply(holder, event);
        }
    }

    fn reset(&mut self, worker: WorkerId, rank: DpRank, reason: ResetReason) {
        self.index.clear(Holder { worker, rank });
        if reason == ResetReason::FeedRemoved {
            self.index.remove_worker(worker);
        }
    }

    fn live(&mut self, worker: WorkerId, live: bool) {
        self.live.set(worker, live);
    }
}
