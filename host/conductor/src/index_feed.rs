//! Joins the event feeds to the index: the one place that knows both.

use std::collections::HashMap;
use std::sync::Arc;

use kv_feed::{FeedSink, ResetReason};
use kv_index::{Holder, SharedPrefixIndex};
use proxy::LiveFeeds;
use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};

/// Applies what feeds deliver to the index. Runs on the feed thread.
pub(crate) struct IndexFeed {
    index: Arc<SharedPrefixIndex>,
    live: Arc<LiveFeeds>,
    workers: HashMap<WorkerId, Followed>,
}

/// The feeds of one worker: one for each of its ranks that has a publisher of its own.
#[derive(Debug, Default)]
struct Followed {
    feeds: usize,
    live: usize,
}

impl IndexFeed {
    /// A sink into `index` that tells the request path which workers it knows of.
    #[must_use]
    pub(crate) fn new(index: Arc<SharedPrefixIndex>, live: Arc<LiveFeeds>) -> Self {
        Self {
            index,
            live,
            workers: HashMap::new(),
        }
    }
}

impl FeedSink for IndexFeed {
    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]) {
        self.index.apply_batch(Holder { worker, rank }, events);
    }

    fn reset(&mut self, worker: WorkerId, rank: DpRank, _: ResetReason) {
        self.index.clear(Holder { worker, rank });
    }

    fn opened(&mut self, worker: WorkerId) {
        self.workers.entry(worker).or_default().feeds += 1;
        self.tell(worker);
    }

    fn closed(&mut self, worker: WorkerId) {
        let Some(followed) = self.workers.get_mut(&worker) else {
            return;
        };
        followed.feeds -= 1;
        if followed.feeds == 0 {
            self.workers.remove(&worker);
            self.index.remove_worker(worker);
        }
        self.tell(worker);
    }

    fn objects(&mut self, store: StoreId, events: &[ObjectEvent]) {
        self.index.apply_objects(store, events);
    }

    fn reset_store(&mut self, store: StoreId, _: ResetReason) {
        self.index.clear_store(store);
    }

    fn store_closed(&mut self, store: StoreId) {
        self.index.remove_store(store);
    }

    fn live(&mut self, worker: WorkerId, live: bool) {
        if let Some(followed) = self.workers.get_mut(&worker) {
            followed.live = if live {
                followed.live + 1
            } else {
                followed.live - 1
            };
        }
        self.tell(worker);
    }
}

impl IndexFeed {
    /// A worker's best rank is asked for, so that what is known of it is current only when all its feeds are.
    fn tell(&self, worker: WorkerId) {
        let is_live = |followed: &Followed| followed.live == followed.feeds;
        self.live
            .set(worker, self.workers.get(&worker).is_some_and(is_live));
    }
}

#[cfg(test)]
mod tests {
    use kv_index::IndexLimits;

    use super::*;

    #[test]
    fn a_worker_is_known_while_the_feeds_of_all_its_ranks_are_live() {
        let live = Arc::<LiveFeeds>::default();
        let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 8 });
        let mut sink = IndexFeed::new(Arc::new(index), Arc::clone(&live));
        let worker = WorkerId(1);
        let mut check = |change: &dyn Fn(&mut IndexFeed), expected: bool| {
            change(&mut sink);
            assert_eq!(live.is_live(worker), expected);
        };
        check(&|sink| sink.opened(worker), false);
        check(&|sink| sink.opened(worker), false);
        check(&|sink| sink.live(worker, true), false);
        check(&|sink| sink.live(worker, true), true);
        check(&|sink| sink.live(worker, false), false);
        check(&|sink| sink.closed(worker), true);
        check(&|sink| sink.live(worker, false), false);
        check(&|sink| sink.closed(worker), false);
        check(&|sink| sink.opened(worker), false);
    }
}
