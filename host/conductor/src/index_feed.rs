//! Joins the event feeds to the index: the one place that knows both.

use std::sync::Arc;

use kv_feed::{FeedSink, ResetReason};
use kv_index::{Holder, SharedPrefixIndex};
use routing::{BlockEvent, DpRank, WorkerId};
use tracing::info;

/// Applies what feeds deliver to the index. Runs on the feed thread.
pub(crate) struct IndexFeed {
    index: Arc<SharedPrefixIndex>,
}

impl IndexFeed {
    /// A sink into `index`.
    #[must_use]
    pub(crate) fn new(index: Arc<SharedPrefixIndex>) -> Self {
        Self { index }
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
        info!(%worker, rank = rank.0, ?reason, "forgot the blocks of a worker: its events have to be learnt anew");
        self.index.clear(Holder { worker, rank });
        if reason == ResetReason::FeedRemoved {
            self.index.remove_worker(worker);
        }
    }
}
