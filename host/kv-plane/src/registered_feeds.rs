//! Feeds of publishers that clients register with the indexer.

use std::sync::Arc;

use indexer_api::{FeedFollower, FollowError, FollowedSource, FollowedWorker, Service, ServiceKind};
use kv_feed::{Endpoint, FeedError, FeedSpec, StoreSpec};
use routing::{WorkerId, WorkerIds};

use crate::feed_list::FeedList;
use crate::index_sink::WorkerLiveness;

/// Feeds of registered publishers, followed like those of the workers, under ids of the same run.
pub struct RegisteredFeeds {
    feeds: Arc<FeedList>,
    ids: WorkerIds,
    /// Liveness as policies see it.
    live: Arc<dyn WorkerLiveness>,
}

impl RegisteredFeeds {
    pub(crate) fn new(feeds: Arc<FeedList>, ids: WorkerIds, live: Arc<dyn WorkerLiveness>) -> Self {
        Self { feeds, ids, live }
    }

    fn follow_engine(&self, service: &Service, name: Box<str>) -> Result<FollowedSource, FeedError> {
        let worker = self.ids.next();
        self.feeds.register(FeedSpec {
            worker,
            name,
            endpoint: Endpoint::Connect(service.endpoint.to_string()),
            replay: replay(service).map(str::to_owned),
            topic: String::new(),
            rank: Some(service.rank),
            adapter: (!service.lora.is_empty()).then(|| service.lora.clone()),
            curve: None,
        })?;
        Ok(FollowedSource::Engine(worker))
    }

    fn follow_store(&self, service: &Service, name: Box<str>) -> Result<FollowedSource, FeedError> {
        let store = self.feeds.new_store();
        self.feeds.register_store(StoreSpec {
            store,
            name,
            endpoint: Endpoint::Connect(service.endpoint.to_string()),
            curve: None,
        })?;
        Ok(FollowedSource::Store(store))
    }
}

fn replay(service: &Service) -> Option<&str> {
    (!service.replay.is_empty()).then_some(&*service.replay)
}

impl FeedFollower for RegisteredFeeds {
    fn follow(&self, service: &Service) -> Result<FollowedSource, FollowError> {
        for endpoint in std::iter::once(&*service.endpoint).chain(replay(service)) {
            conductor_config::check_endpoint(endpoint).map_err(|why| FollowError::Endpoint {
                endpoint: endpoint.into(),
                why,
            })?;
        }
        let name = format!("{}|{}|{}", service.instance, service.tenant, service.rank.0).into();
        let followed = match service.kind {
            ServiceKind::Vllm | ServiceKind::Sglang => self.follow_engine(service, name),
            ServiceKind::Mooncake => self.follow_store(service, name),
        };
        followed.map_err(|error| FollowError::NoRoom(error.into()))
    }

    fn unfollow(&self, followed: FollowedSource) {
        match followed {
            FollowedSource::Engine(worker) => self.feeds.unregister(worker),
            FollowedSource::Store(store) => self.feeds.unregister_store(store),
        }
    }

    fn workers(&self) -> Arc<[FollowedWorker]> {
        self.feeds.followed()
    }

    fn is_current(&self, engine: WorkerId) -> bool {
        self.live.is_live(engine)
    }

    fn feed_states(&self) -> Vec<(FollowedSource, &'static str)> {
        let (engines, stores) = (self.feeds.status(), self.feeds.store_status());
        let engines = engines
            .iter()
            .map(|feed| (FollowedSource::Engine(feed.worker), feed.state.as_str()));
        let stores = stores
            .iter()
            .map(|feed| (FollowedSource::Store(feed.store), feed.state.as_str()));
        engines.chain(stores).collect()
    }
}
