//! What is known of the workers' caches: the index, and the feeds that tell it.

use std::sync::Arc;

use conductor_config::Config;
use kv_feed::{FeedLimits, KvFeeds};
use kv_index::{IndexLimits, SharedPrefixIndex};
use prometheus_client::registry::Registry;
use proxy::{LiveFeeds, SnapshotCell};

use super::BuildError;
use crate::discovery::Discovery;
use crate::feed_list::FeedList;
use crate::index_feed::IndexFeed;
use crate::indexer::{Indexing, RegisteredFeeds};
use crate::knowledge::KnowledgeSources;
use crate::metrics::CacheCollector;
use crate::reload::ActiveConfig;
use crate::store_metrics::StoreCollector;

/// The index and its feeds; none is followed yet.
pub(crate) struct Caches {
    pub(super) index: Arc<SharedPrefixIndex>,
    pub(super) live: Arc<LiveFeeds>,
    pub(super) feeds: Arc<KvFeeds>,
    pub(crate) discovery: Arc<Discovery>,
    list: Arc<FeedList>,
}

impl Caches {
    pub(crate) fn start(config: &Config, registry: &mut Registry) -> Result<Self, BuildError> {
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits {
            max_blocks: usize::try_from(config.index.max_blocks).unwrap_or(usize::MAX),
        }));
        let live = Arc::new(LiveFeeds::default());
        let sink = IndexFeed::new(Arc::clone(&index), Arc::clone(&live));
        let feeds = Arc::new(KvFeeds::start(Box::new(sink), feed_limits(config)).map_err(BuildError::Feeds)?);
        registry.register_collector(Box::new(CacheCollector {
            feeds: Arc::clone(&feeds),
            index: Arc::clone(&index),
        }));
        let list = Arc::new(FeedList::new(Arc::clone(&feeds)));
        let discovery = Discovery::new(Arc::clone(&list), Arc::clone(&index));
        let discovery = Arc::new(discovery);
        registry.register_collector(Box::new(StoreCollector {
            discovery: Arc::clone(&discovery),
        }));
        Ok(Self {
            index,
            live,
            feeds,
            discovery,
            list,
        })
    }

    /// What the warnings of missing cache knowledge are computed from.
    pub(super) fn knowledge(&self, cell: &Arc<SnapshotCell>) -> KnowledgeSources {
        KnowledgeSources {
            cell: Arc::clone(cell),
            discovery: Arc::clone(&self.discovery),
            feeds: Arc::clone(&self.feeds),
        }
    }

    /// The index as a service, where the configuration asks for it. What is registered there is followed as workers are.
    pub(super) async fn indexing(
        &self,
        ActiveConfig {
            config,
            fleet,
            resources,
            ..
        }: &ActiveConfig,
    ) -> Result<Option<Indexing>, BuildError> {
        let follow = RegisteredFeeds {
            feeds: Arc::clone(&self.list),
            ids: fleet.ids().clone(),
            live: Arc::clone(&self.live),
        };
        Indexing::bind(config, &resources.keys, (*self.index).clone(), follow).await
    }
}

fn feed_limits(config: &Config) -> FeedLimits {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let limits = &config.kv_events;
    FeedLimits {
        frame: bytes(limits.max_frame),
        message: bytes(limits.max_message),
        feed: bytes(limits.feed_buffer),
        total: bytes(limits.total_buffer),
    }
}
