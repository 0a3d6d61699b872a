//! The metrics of reloading, policies, feeds and the index. The request path's are the proxy's.

use std::sync::Arc;

use kv_feed::{FeedState, FeedStatus, KvFeeds};
use kv_index::{IndexStats, SharedPrefixIndex};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use routing::Generation;

/// Counted by the reload thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlMetrics {
    generation: Gauge,
    valid: Gauge,
    reloads: Family<ReloadLabels, Counter>,
    policy_versions: Family<PolicyLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
    result: &'static str,
}

impl ControlMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "conductor_config_generation",
            "Snapshots put in force since start",
            metrics.generation.clone(),
        );
        registry.register(
            "conductor_config_valid",
            "1 while the newest configuration file is the one in force, 0 while it is refused",
            metrics.valid.clone(),
        );
        registry.register(
            "conductor_config_reloads",
            "Configurations read",
            metrics.reloads.clone(),
        );
        registry.register(
            "conductor_policy_versions",
            "Versions of policies that were put in force or refused",
            metrics.policy_versions.clone(),
        );
        metrics.valid.set(1);
        metrics
    }

    pub(crate) fn in_force(&self, generation: Generation) {
        self.generation
            .set(i64::try_from(generation.0).unwrap_or(i64::MAX));
    }

    pub(crate) fn reload_applied(&self) {
        self.valid.set(1);
        self.reloads
            .get_or_create(&ReloadLabels { result: "applied" })
            .inc();
    }

    pub(crate) fn reload_refused(&self) {
        self.valid.set(0);
        self.reloads
            .get_or_create(&ReloadLabels { result: "refused" })
            .inc();
    }

    /// The file was put back to what is in force.
    pub(crate) fn reload_unchanged(&self) {
        self.valid.set(1);
    }

    pub(crate) fn policy_swapped(&self, policy: &str) {
        self.policy_version(policy, "in-force");
    }

    pub(crate) fn policy_refused(&self, policy: &str) {
        self.policy_version(policy, "refused");
    }

    fn policy_version(&self, policy: &str, result: &'static str) {
        self.policy_versions
            .get_or_create(&PolicyLabels {
                policy: policy.to_owned(),
                result,
            })
            .inc();
    }
}

/// Asks the feeds and the index when somebody scrapes, instead of counting twice.
#[derive(Debug)]
pub(crate) struct CacheCollector {
    pub(crate) feeds: Arc<KvFeeds>,
    pub(crate) index: Arc<SharedPrefixIndex>,
}

impl Collector for CacheCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut page = Page(encoder);
        encode_index(&self.index.stats(), &mut page)?;
        let feeds = self.feeds.status();
        if feeds.is_empty() {
            return Ok(());
        }
        encode_feeds(&feeds, &mut page)?;
        let help = "Blocks that the index says the worker holds, over all its ranks";
        let held = |feed: &FeedStatus| self.index.held_blocks(feed.worker);
        page.gauges("conductor_index_worker_blocks", help, by_worker(&feeds, held))
    }
}

/// Writes families whose values are known only now.
struct Page<'a>(DescriptorEncoder<'a>);

type Labels<'a> = [(&'static str, &'a str); 1];

impl Page<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: usize) -> Result<(), std::fmt::Error> {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        let metric = self.0.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }

    fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'l>, u64)>,
    ) -> Result<(), std::fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels<'l>, u64)>,
    ) -> Result<(), std::fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn encode_index(stats: &IndexStats, page: &mut Page<'_>) -> Result<(), std::fmt::Error> {
    page.gauge(
        "conductor_index_blocks",
        "Blocks in the prefix index, counted once for each worker and rank that holds them: what `index.max-blocks` bounds",
        stats.blocks,
    )?;
    page.gauge(
        "conductor_index_distinct_blocks",
        "Different blocks in the prefix index, however many workers hold them",
        stats.distinct_blocks,
    )?;
    let outcomes = stats.applied.named().into_iter();
    page.counters(
        "conductor_index_events",
        "Blocks that events told of, by what became of them",
        outcomes.map(|(what, blocks)| ([("what", what)], blocks)),
    )
}

type OfFeed = fn(&FeedStatus) -> u64;

const FEED_COUNTERS: &[(&str, &str, OfFeed)] = &[
    (
        "conductor_kv_feed_batches",
        "Event batches passed on to the index",
        |feed| feed.batches,
    ),
    (
        "conductor_kv_feed_events",
        "Events passed on to the index",
        |feed| feed.events,
    ),
    (
        "conductor_kv_feed_rejected",
        "Events skipped as undecodable or not understood",
        |feed| feed.rejected,
    ),
    (
        "conductor_kv_feed_rejected_messages",
        "Messages dropped whole: wrong frames, or a payload that is no batch",
        |feed| feed.rejected_messages,
    ),
    (
        "conductor_kv_feed_gaps",
        "Gaps found in the sequence of batches",
        |feed| feed.gaps,
    ),
    ("conductor_kv_feed_replays", "Replays asked for", |feed| {
        feed.replays
    }),
    (
        "conductor_kv_feed_restarts",
        "Times that the publisher was seen to have started anew",
        |feed| feed.restarts,
    ),
    (
        "conductor_kv_feed_resets",
        "Times that what was known of one of the worker's caches was dropped",
        |feed| feed.resets,
    ),
];

const FEED_LEVELS: &[(&str, &str, OfFeed)] = &[
    (
        "conductor_kv_feed_live",
        "1 while what the worker's event feed tells is current",
        |feed| u64::from(feed.state == FeedState::Live),
    ),
    (
        "conductor_kv_feed_complete",
        "1 while everything since the publisher's start was seen; else hits may be missed, never made up",
        |feed| u64::from(feed.complete),
    ),
];

fn encode_feeds(feeds: &[FeedStatus], page: &mut Page<'_>) -> Result<(), std::fmt::Error> {
    for (name, help, count) in FEED_COUNTERS {
        page.counters(name, help, by_worker(feeds, count))?;
    }
    for (name, help, level) in FEED_LEVELS {
        page.gauges(name, help, by_worker(feeds, level))?;
    }
    Ok(())
}

fn by_worker<'a>(
    feeds: &'a [FeedStatus],
    value: impl Fn(&FeedStatus) -> u64 + 'a,
) -> impl Iterator<Item = (Labels<'a>, u64)> {
    feeds
        .iter()
        .map(move |feed| ([("worker", &*feed.name)], value(feed)))
}

#[cfg(test)]
mod tests {
    use kv_feed::FeedSpec;
    use kv_index::{Holder, IndexLimits};
    use prometheus_client::encoding::text::encode;
    use routing::{BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, WorkerId};

    use super::*;
    use crate::index_feed::IndexFeed;

    /// A page about one worker, whose feed is never reached and who removed a block that it did not have.
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
        let sink = IndexFeed::new(Arc::clone(&index), Arc::default());
        let feeds = KvFeeds::start(Box::new(sink)).unwrap();
        let spec = FeedSpec {
            worker,
            name: "w1".into(),
            endpoint: "tcp://127.0.0.1:1".into(),
            replay: None,
            topic: String::new(),
            rank: None,
        };
        feeds.set(vec![spec]).unwrap();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(CacheCollector {
            feeds: Arc::new(feeds),
            index,
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
            "conductor_index_events_total{what=\"absent\"} 1",
            "conductor_index_events_total{what=\"over-limit\"} 0",
            "conductor_index_worker_blocks{worker=\"w1\"} 0",
            "conductor_kv_feed_live{worker=\"w1\"} 0",
            "conductor_kv_feed_complete{worker=\"w1\"} 0",
            "conductor_kv_feed_rejected_messages_total{worker=\"w1\"} 0",
            "conductor_kv_feed_restarts_total{worker=\"w1\"} 0",
            "conductor_kv_feed_resets_total{worker=\"w1\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
        }
    }
}
