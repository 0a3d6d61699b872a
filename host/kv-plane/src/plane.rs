//! Index and event feeds, started together.

use std::sync::Arc;

use kv_feed::{FeedError, FeedLimits, KvFeeds};
use kv_index::{IndexLimits, SharedPrefixIndex};
use prometheus_client::registry::Registry;
use routing::WorkerIds;

use crate::discovery::Discovery;
use crate::feed_list::FeedList;
use crate::index_fill::{FillProgress, IndexFill};
use crate::index_sink::{IndexSink, WorkerLiveness};
use crate::metrics::{CacheCollector, StoreCollector};
use crate::peer_fill::PeerFill;
use crate::registered_feeds::RegisteredFeeds;

/// The index and its feeds.
#[derive(Debug)]
pub struct KvPlane {
    /// Prefixes that the workers' caches hold.
    pub index: Arc<SharedPrefixIndex>,
    /// Subscriptions to the engines' events.
    pub feeds: Arc<KvFeeds>,
    /// Finds the feeds of workers.
    pub discovery: Arc<Discovery>,
    /// Fill of feeds from other routers.
    pub peer_fill: Arc<PeerFill>,
    list: Arc<FeedList>,
}

impl KvPlane {
    /// Starts an index with these limits, without a feed yet, and registers the metrics.
    ///
    /// # Errors
    /// [`FeedError`] if the feeds cannot be set up.
    pub fn start(
        index: IndexLimits,
        feeds: FeedLimits,
        live: Arc<dyn WorkerLiveness>,
        registry: &mut Registry,
    ) -> Result<Self, FeedError> {
        let index = Arc::new(SharedPrefixIndex::new(index));
        let sink = IndexSink::new(Arc::clone(&index), live);
        let feeds = Arc::new(KvFeeds::start(Box::new(sink), feeds)?);
        let progress = Arc::<FillProgress>::default();
        registry.register_collector(Box::new(CacheCollector {
            feeds: Arc::clone(&feeds),
            index: Arc::clone(&index),
            fill: Arc::clone(&progress),
        }));
        let list = Arc::new(FeedList::new(Arc::clone(&feeds)));
        let peer_fill = Arc::new(PeerFill::new(Arc::clone(&feeds), Arc::clone(&index)));
        let fill = IndexFill {
            progress,
            peers: Arc::clone(&peer_fill),
        };
        let discovery = Arc::new(Discovery::new(Arc::clone(&list), Arc::clone(&index), fill));
        registry.register_collector(Box::new(StoreCollector {
            discovery: Arc::clone(&discovery),
        }));
        Ok(Self {
            index,
            feeds,
            discovery,
            peer_fill,
            list,
        })
    }

    /// Returns the feeds that clients of the indexer register, with worker ids of this source.
    #[must_use]
    pub fn registered_feeds(&self, ids: WorkerIds, live: Arc<dyn WorkerLiveness>) -> RegisteredFeeds {
        RegisteredFeeds::new(Arc::clone(&self.list), ids, live)
    }
}
