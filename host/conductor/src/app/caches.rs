//! Knowledge of the workers' caches, as the configuration limits it.

use std::sync::Arc;

use conductor_config::Config;
use kv_feed::FeedLimits;
use kv_index::IndexLimits;
use kv_plane::KvPlane;
use prometheus_client::registry::Registry;
use proxy::LiveFeeds;

use super::build_error::BuildError;
use crate::indexer::Indexing;
use crate::listeners::ListenError;
use crate::live_fleet::RequestPathLiveness;
use crate::reload::ActiveConfig;

/// The index with its feeds, and the workers whose feeds are live.
pub(crate) struct Caches {
    pub(crate) plane: KvPlane,
    pub(super) live: Arc<LiveFeeds>,
}

impl Caches {
    /// Starts them without a feed.
    pub(crate) fn start(config: &Config, registry: &mut Registry) -> Result<Self, BuildError> {
        let live = Arc::new(LiveFeeds::default());
        let index = IndexLimits {
            max_blocks: usize::try_from(config.index.max_blocks).unwrap_or(usize::MAX),
        };
        let liveness = Arc::new(RequestPathLiveness(Arc::clone(&live)));
        let plane = KvPlane::start(index, feed_limits(config), liveness, registry);
        let plane = plane.map_err(BuildError::Feeds)?;
        Ok(Self { plane, live })
    }

    /// Binds the indexer, if it is configured. Its registered publishers are followed like workers.
    pub(super) async fn indexing(
        &self,
        ActiveConfig {
            config,
            fleet,
            resources,
            ..
        }: &ActiveConfig,
    ) -> Result<Option<Indexing>, ListenError> {
        let live = Arc::new(RequestPathLiveness(Arc::clone(&self.live)));
        let follow = self.plane.registered_feeds(fleet.ids().clone(), live);
        Indexing::bind(config, &resources.keys, (*self.plane.index).clone(), follow).await
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
