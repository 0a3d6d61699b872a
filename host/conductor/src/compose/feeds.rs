//! Configured sources of KV events.

use std::collections::HashMap;
use std::sync::Arc;

use conductor_config::{Config, KvEvents, KvFeedConfig, PoolConfig, StoreConfig, WorkerConfig};
use kv_feed::{CurveKeys, Endpoint, FeedSpec};
use routing::{Fleet, Worker};

use super::workers::member_names;
use external_resources::{Certificates, Keys};
use kv_plane::{FeedPlan, PageTls, Publisher, StorePlan, Target};
use proxy::Authorization;

/// Access to the pages and the publishers of a pool's workers.
#[derive(Clone)]
struct PoolAccess {
    authorization: Authorization,
    tls: PageTls,
    curve: Option<CurveKeys>,
}

/// Returns the feeds of the fleet's workers: configured ones, and targets of discovery.
pub(crate) fn feed_plan(
    config: &Config,
    keys: &Keys,
    certificates: &Certificates,
    fleet: &Fleet,
) -> FeedPlan {
    let mut plan = FeedPlan {
        stores: config
            .stores
            .iter()
            .map(|store| store_plan(store, config, fleet))
            .collect(),
        workers: fleet.workers().to_vec(),
        ..FeedPlan::default()
    };
    let by_name = by_name(fleet);
    // Once a pool: the settings of TLS are found by the URLs of its workers.
    let access = config.pools.iter().map(|pool| PoolAccess {
        authorization: keys.authorization(pool),
        tls: PageTls(certificates.of_pool(pool)),
        curve: keys.curve(pool),
    });
    let workers = config.pools.iter().zip(access).flat_map(|(pool, access)| {
        pool.workers
            .iter()
            .map(move |worker| (pool, worker, access.clone()))
    });
    for (pool, configured, access) in workers {
        let members = member_names(configured).filter_map(|name| by_name.get(name.as_str()).copied());
        let members: Vec<&Arc<Worker>> = members.collect();
        let ids = members.iter().map(|member| member.id());
        plan.authorizations
            .extend(ids.clone().map(|id| (id, access.authorization.clone())));
        plan.tls.extend(ids.map(|id| (id, access.tls.clone())));
        match &configured.kv_events {
            // One feed for each rank where those are workers of their own, else all for the one worker.
            KvEvents::At(feeds) => plan.given.extend(
                feeds
                    .iter()
                    .zip(members.iter().cycle())
                    .map(|(feed, worker)| feed_spec(worker, feed, access.curve.clone())),
            ),
            KvEvents::Auto if !members.is_empty() => {
                plan.targets.push(target(pool, configured, &members, access))
            }
            KvEvents::Auto | KvEvents::Off => {}
        }
    }
    plan
}

/// Returns the workers of a fleet by their names.
pub(super) fn by_name(fleet: &Fleet) -> HashMap<&str, &Arc<Worker>> {
    let workers = fleet.workers().iter();
    workers.map(|worker| (&*worker.spec().name, worker)).collect()
}

fn target(
    pool: &PoolConfig,
    configured: &WorkerConfig,
    members: &[&Arc<Worker>],
    access: PoolAccess,
) -> Target {
    let publisher = |worker: &&Arc<Worker>| Publisher {
        worker: worker.id(),
        name: worker.spec().name.clone(),
        rank: worker.spec().rank,
    };
    Target {
        name: configured.name.as_str().into(),
        url: configured.url.as_str().into(),
        tls: access.tls,
        authorization: access.authorization,
        publishers: members.iter().map(publisher).collect(),
        hosts: pool
            .events
            .hosts
            .iter()
            .map(|host| host.as_str().into())
            .collect(),
        ipc: pool.events.ipc,
        curve: access.curve,
    }
}

fn store_plan(store: &StoreConfig, config: &Config, fleet: &Fleet) -> StorePlan {
    let by_name = by_name(fleet);
    let pools = config
        .pools
        .iter()
        .filter(|pool| store.pools.contains(&pool.name));
    let names = pools.flat_map(|pool| &pool.workers).flat_map(member_names);
    StorePlan {
        name: store.name.as_str().into(),
        endpoint: store.endpoint.clone(),
        status: store.status.as_deref().map(Into::into),
        shards: store.shards,
        workers: names
            .filter_map(|name| by_name.get(name.as_str()).map(|worker| worker.id()))
            .collect(),
    }
}

fn feed_spec(worker: &Worker, feed: &KvFeedConfig, curve: Option<CurveKeys>) -> FeedSpec {
    let endpoint = feed.endpoint.clone();
    FeedSpec {
        worker: worker.id(),
        name: worker.spec().name.clone(),
        endpoint: if feed.bind {
            Endpoint::Bind(endpoint)
        } else {
            Endpoint::Connect(endpoint)
        },
        replay: feed.replay.clone(),
        topic: feed.topic.clone(),
        rank: feed.rank,
        adapter: None,
        curve,
    }
}
