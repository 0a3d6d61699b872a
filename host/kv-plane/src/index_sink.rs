//! Sink of the event feeds: applies their events to the index.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kv_feed::{FeedSink, ResetReason};
use kv_index::{Holder, SharedPrefixIndex};
use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};

/// Workers of which the index is current, as the request path sees them.
pub trait WorkerLiveness: fmt::Debug + Send + Sync {
    /// Records whether all feeds of a worker are live.
    fn set_live(&self, worker: WorkerId, live: bool);

    /// Returns true if all feeds of a worker are live.
    fn is_live(&self, worker: WorkerId) -> bool;
}

/// Sink that applies events to the index. It runs on the feed thread.
pub(crate) struct IndexSink {
    index: Arc<SharedPrefixIndex>,
    live: Arc<dyn WorkerLiveness>,
    workers: HashMap<WorkerId, WorkerFeeds>,
}

/// The feeds of one worker: one for each of its ranks that has a publisher of its own.
#[derive(Debug, Default)]
struct WorkerFeeds {
    feeds: usize,
    live: usize,
}

impl IndexSink {
    /// Returns a sink into `index` that reports to the request path which workers are live.
    #[must_use]
    pub(crate) fn new(index: Arc<SharedPrefixIndex>, live: Arc<dyn WorkerLiveness>) -> Self {
        Self {
            index,
            live,
            workers: HashMap::new(),
        }
    }
}

impl FeedSink for IndexSink {
    fn events(&mut self, worker: WorkerId, rank: DpRank, events: &[BlockEvent]) {
        self.index.apply_batch(Holder { worker, rank }, events);
    }

    fn reset(&mut self, worker: WorkerId, rank: DpRank, _: ResetReason) {
        self.index.clear(Holder { worker, rank });
    }

    fn opened(&mut self, worker: WorkerId) {
        self.workers.entry(worker).or_default().feeds += 1;
        self.report_liveness(worker);
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
        self.report_liveness(worker);
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
        self.report_liveness(worker);
    }
}

impl IndexSink {
    /// Reports a worker as live only while all its feeds are, since policies query its best rank.
    fn report_liveness(&self, worker: WorkerId) {
        let is_live = |followed: &WorkerFeeds| followed.live == followed.feeds;
        self.live
            .set_live(worker, self.workers.get(&worker).is_some_and(is_live));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use kv_index::IndexLimits;

    use super::*;

    #[derive(Debug, Default)]
    pub(crate) struct LiveWorkers(Mutex<HashSet<WorkerId>>);

    impl WorkerLiveness for LiveWorkers {
        fn set_live(&self, worker: WorkerId, live: bool) {
            let mut workers = self.0.lock().unwrap();
            let _ = if live {
                workers.insert(worker)
            } else {
                workers.remove(&worker)
            };
        }

        fn is_live(&self, worker: WorkerId) -> bool {
            self.0.lock().unwrap().contains(&worker)
        }
    }

    #[test]
    fn a_worker_is_live_while_the_feeds_of_all_its_ranks_are() {
        let live = Arc::<LiveWorkers>::default();
        let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 8 });
        let mut sink = IndexSink::new(Arc::new(index), Arc::clone(&live) as _);
        let worker = WorkerId(1);
        let mut check = |change: &dyn Fn(&mut IndexSink), expected: bool| {
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
