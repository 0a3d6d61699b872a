//! Metrics of the index and its feeds, read at scrape time.

mod feeds;
mod stores;

use std::collections::BTreeMap;
use std::sync::Arc;

use kv_feed::{FeedState, FeedStatus, KvFeeds};
use kv_index::{IndexStats, SharedPrefixIndex};
use observability::MetricPage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use routing::WorkerId;

pub(crate) use self::stores::StoreCollector;
use crate::index_fill::{FillOutcome, FillProgress};

/// Collector of the metrics of the index and of its feeds.
#[derive(Debug)]
pub(crate) struct CacheCollector {
    pub(crate) feeds: Arc<KvFeeds>,
    pub(crate) index: Arc<SharedPrefixIndex>,
    pub(crate) fill: Arc<FillProgress>,
}

impl Collector for CacheCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut page = MetricPage::new(encoder);
        encode_index(&self.index.stats(), &mut page)?;
        let fill = self.fill.get();
        page.gauge(
            "conductor_index_unfilled_feeds",
            "Feeds that the start waits for; those that were left when `index.fill-within` was over",
            fill.unfilled,
        )?;
        let feeds = self.feeds.status();
        page.gauge(
            "conductor_index_late_feeds",
            "Feeds that are not current since a start that was ready without them, because `index.fill-within` was over",
            late_feeds(fill, &feeds),
        )?;
        if feeds.is_empty() {
            return Ok(());
        }
        feeds::encode(&feeds, &mut page)?;
        page.gauge(
            "conductor_kv_feed_held_bytes",
            "Memory of messages between the feeds' sockets and the decoder, limited by `kv-events.total-buffer`",
            self.feeds.held_bytes(),
        )?;
        let help = "Blocks of the worker in the index, over all its ranks";
        let workers: BTreeMap<&str, WorkerId> = feeds.iter().map(|feed| (&*feed.name, feed.worker)).collect();
        let held = workers
            .into_iter()
            .map(|(name, worker)| ([("worker", name)], self.index.held_blocks(worker)));
        page.gauges("conductor_index_worker_blocks", help, held)
    }
}

/// Returns the number of feeds that are still not current after a start that did not wait for them any longer.
fn late_feeds(fill: FillOutcome, feeds: &[FeedStatus]) -> usize {
    let late = feeds.iter().filter(|feed| feed.state != FeedState::Live);
    match fill.is_over {
        true => late.count().min(fill.unfilled),
        false => 0,
    }
}

fn encode_index(stats: &IndexStats, page: &mut MetricPage<'_>) -> Result<(), std::fmt::Error> {
    page.gauge(
        "conductor_index_blocks",
        "Blocks in the prefix index, counted once for each cache, tier and group that holds them",
        stats.blocks,
    )?;
    page.gauge(
        "conductor_index_distinct_blocks",
        "Distinct blocks in the prefix index, limited by `index.max-blocks`",
        stats.distinct_blocks,
    )?;
    page.gauge("conductor_index_bytes", "Memory of the prefix index", stats.bytes)?;
    page.gauge(
        "conductor_index_expected_blocks",
        "Speculative blocks of requests just sent to workers",
        stats.expected,
    )?;
    page.gauge(
        "conductor_index_leaving_blocks",
        "Blocks of removed workers whose memory is not freed yet",
        stats.leaving,
    )?;
    page.gauge(
        "conductor_index_store_blocks",
        "Blocks with objects in stores",
        stats.objects,
    )?;
    page.counters(
        "conductor_index_evicted_blocks",
        "Blocks evicted at `index.max-blocks`",
        [([("why", "max-blocks")], stats.evicted)].into_iter(),
    )?;
    let outcomes = stats.applied.named().into_iter();
    page.counters(
        "conductor_index_events",
        "Blocks in events, by result",
        outcomes.map(|(what, blocks)| ([("what", what)], blocks)),
    )
}

#[cfg(test)]
mod tests {
    use kv_feed::{Endpoint, FeedLimits, FeedSpec};
    use kv_index::{Holder, IndexLimits};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use routing::{BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, WorkerId};

    use super::*;
    use crate::index_sink::{IndexSink, WorkerLiveness};

    #[derive(Debug)]
    struct NoLiveness;

    impl WorkerLiveness for NoLiveness {
        fn set_live(&self, _: WorkerId, _: bool) {}

        fn is_live(&self, _: WorkerId) -> bool {
            false
        }
    }

    /// Returns the page of one worker with an unreachable feed that removed an absent block.
    fn page() -> String {
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 8 }));
        let worker = WorkerId(1);
        let rank = DpRank(0);
        let removed = BlockEvent::Removed(RemovedBlocks {
            hashes: vec![EngineBlockHash(7)],
            tier: None,
            group: 0,
        });
        index.apply(Holder { worker, rank }, &removed);
        let sink = IndexSink::new(Arc::clone(&index), Arc::new(NoLiveness));
        let feeds = KvFeeds::start(Box::new(sink), FeedLimits::default()).unwrap();
        let spec = FeedSpec {
            worker,
            name: "w1".into(),
            endpoint: Endpoint::Connect("tcp://127.0.0.1:1".into()),
            replay: None,
            topic: String::new(),
            rank: None,
            adapter: None,
            curve: None,
        };
        feeds.replace(vec![spec], Vec::new());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(CacheCollector {
            feeds: Arc::new(feeds),
            index,
            fill: Arc::default(),
        }));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn the_index_and_every_feed_are_on_the_page() {
        let page = page();
        for line in [
            "conductor_index_blocks 0",
            "conductor_index_distinct_blocks 0",
            "conductor_index_unfilled_feeds 0",
            "conductor_index_late_feeds 0",
            "conductor_index_events_total{what=\"absent\"} 1",
            "conductor_index_events_total{what=\"over-limit\"} 0",
            "conductor_index_worker_blocks{worker=\"w1\"} 0",
            "conductor_kv_feed_held_bytes 0",
            "conductor_kv_feed_live{worker=\"w1\",rank=\"0\"} 0",
            "conductor_kv_feed_complete{worker=\"w1\",rank=\"0\"} 0",
            "conductor_kv_feed_rejected_messages_total{worker=\"w1\",rank=\"0\"} 0",
            "conductor_kv_feed_restarts_total{worker=\"w1\",rank=\"0\"} 0",
            "conductor_kv_feed_resets_total{worker=\"w1\",rank=\"0\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
        }
    }
}
