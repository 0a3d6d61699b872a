//! The metrics of reloading, policies, feeds and the index. The request path's are the proxy's.

use std::sync::Arc;

use kv_feed::{FeedState, FeedStatus, KvFeeds};
use kv_index::SharedPrefixIndex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
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
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        encode_index(&self.index, &mut encoder)?;
        encode_feeds(&self.feeds.status(), &mut encoder)
    }
}

fn encode_index(
    index: &SharedPrefixIndex,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    let stats = index.stats();
    let blocks = ConstGauge::new(i64::try_from(stats.blocks).unwrap_or(i64::MAX));
    let help = "Distinct blocks in the prefix index";
    let metric = encoder.encode_descriptor("conductor_index_blocks", help, None, blocks.metric_type())?;
    blocks.encode(metric)
}

type FeedCount = fn(&FeedStatus) -> u64;

const FEED_COUNTERS: &[(&str, &str, FeedCount)] = &[
    ("conductor_kv_feed_batches", "Event batches received", |feed| {
        feed.batches
    }),
    (
        "conductor_kv_feed_events",
        "Events applied to the index",
        |feed| feed.events,
    ),
    (
        "conductor_kv_feed_rejected",
        "Events or batches that could not be used",
        |feed| feed.rejected,
    ),
    (
        "conductor_kv_feed_gaps",
        "Gaps found in the sequence of batches",
        |feed| feed.gaps,
    ),
    ("conductor_kv_feed_replays", "Replays asked for", |feed| {
        feed.replays
    }),
];

fn encode_feeds(feeds: &[FeedStatus], encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    if feeds.is_empty() {
        return Ok(());
    }
    for (name, help, count) in FEED_COUNTERS {
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut metrics = encoder.encode_descriptor(name, help, None, kind)?;
        for feed in feeds {
            ConstCounter::new(count(feed)).encode(metrics.encode_family(&[("worker", &*feed.name)])?)?;
        }
    }
    let help = "1 while the worker's event feed is live and complete";
    let kind = ConstGauge::new(0_i64).metric_type();
    let mut metrics = encoder.encode_descriptor("conductor_kv_feed_live", help, None, kind)?;
    for feed in feeds {
        let live = ConstGauge::new(i64::from(feed.state == FeedState::Live));
        live.encode(metrics.encode_family(&[("worker", &*feed.name)])?)?;
    }
    Ok(())
}
