//! Views of the registrations and their state: `GET /services`, `/global_view` and `/health`.

use std::collections::{BTreeMap, HashMap};

use kv_index::SharedPrefixIndex;
use serde::Serialize;

use crate::directory::{Directory, RegisteredService};
use crate::follow::{FeedFollower, FollowedFeed, FollowedSource, FollowedWorker};
use crate::profile::{HashProfile, ProfileView};

/// State of a feed that receives events.
const LIVE: &str = "live";

/// A service: upstream's fields and the state of its feed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ServiceView {
    endpoint: Box<str>,
    replay_endpoint: Box<str>,
    #[serde(rename = "Type")]
    kind: &'static str,
    model_name: Box<str>,
    lora_name: Box<str>,
    #[serde(rename = "TenantID")]
    tenant: Box<str>,
    #[serde(rename = "InstanceID")]
    instance: Box<str>,
    block_size: u32,
    #[serde(rename = "DPRank")]
    rank: u16,
    cache_group: Option<u32>,
    hash_profile: Option<ProfileView>,
    state: Option<&'static str>,
    held_blocks: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ServiceList {
    count: usize,
    services: Vec<ServiceView>,
}

#[derive(Debug, Serialize)]
pub(crate) struct GlobalView {
    context_count: usize,
    contexts: Vec<ContextView>,
}

#[derive(Debug, Serialize)]
struct ContextView {
    model_name: Box<str>,
    lora_name: Box<str>,
    block_size: u32,
    tenant_id: Box<str>,
    /// Blocks held by the context's engines, counted once per service.
    prefix_count: u64,
    hash_profile: Option<ProfileView>,
    instances: BTreeMap<Box<str>, Vec<u16>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct HealthView {
    status: &'static str,
    /// Number of registered services and of the router's workers.
    services: usize,
    /// Number of those with a live feed.
    live: usize,
    contexts: usize,
}

/// Returns the state of each source: of several feeds, the one that is not live.
fn feed_states(follow: &dyn FeedFollower) -> HashMap<FollowedSource, &'static str> {
    let mut feed_states = HashMap::new();
    for (followed, state) in follow.feed_states() {
        let known = feed_states.entry(followed).or_insert(state);
        if *known == LIVE {
            *known = state;
        }
    }
    feed_states
}

pub(crate) fn services(
    directory: &Directory,
    follow: &dyn FeedFollower,
    index: &SharedPrefixIndex,
) -> ServiceList {
    let feed_states = feed_states(follow);
    let registered = directory
        .services()
        .map(|RegisteredService { service, followed }| ServiceView {
            endpoint: service.endpoint.clone(),
            replay_endpoint: service.replay.clone(),
            kind: service.kind.as_str(),
            model_name: service.model.clone(),
            lora_name: service.lora.clone(),
            tenant: service.tenant.clone(),
            instance: service.instance.clone(),
            block_size: service.block_size,
            rank: service.rank.0,
            cache_group: None,
            hash_profile: service.profile.as_ref().map(HashProfile::view),
            state: feed_states.get(followed).copied(),
            held_blocks: held_blocks(index, *followed),
        });
    let workers = follow.workers();
    let configured = workers
        .iter()
        .flat_map(|known| worker_views(known, &feed_states, index));
    let services: Vec<_> = registered.chain(configured).collect();
    ServiceList {
        count: services.len(),
        services,
    }
}

/// Returns the held blocks of an engine. The blocks of a store count for no engine.
fn held_blocks(index: &SharedPrefixIndex, followed: FollowedSource) -> u64 {
    match followed {
        FollowedSource::Engine(worker) => index.held_blocks(worker),
        FollowedSource::Store(_) => 0,
    }
}

/// Returns one view per model and publisher, with an empty model if the worker serves any. The type is unknown, and so
/// is the block size before the first event.
fn worker_views(
    known: &FollowedWorker,
    feed_states: &HashMap<FollowedSource, &'static str>,
    index: &SharedPrefixIndex,
) -> Vec<ServiceView> {
    let (worker, spec) = (known.worker.id(), known.worker.spec());
    let any = [Box::from("")];
    let models = if spec.models.is_empty() {
        &any[..]
    } else {
        &spec.models
    };
    let view = |model: &str, feed: &FollowedFeed| ServiceView {
        endpoint: feed.endpoint.clone(),
        replay_endpoint: feed.replay.clone(),
        kind: "worker",
        model_name: model.into(),
        lora_name: "".into(),
        tenant: "default".into(),
        instance: spec.name.clone(),
        block_size: index.block_size(worker).unwrap_or(0),
        rank: feed.rank.0,
        cache_group: None,
        hash_profile: None,
        state: feed_states.get(&FollowedSource::Engine(worker)).copied(),
        held_blocks: index.held_blocks(worker),
    };
    let of_model = |model| known.feeds.iter().map(move |feed| view(model, feed));
    models.iter().map(|model| &**model).flat_map(of_model).collect()
}

pub(crate) fn global_view(directory: &Directory, index: &SharedPrefixIndex) -> GlobalView {
    let contexts = directory.engine_contexts().map(|(context, engines)| {
        let mut instances: BTreeMap<Box<str>, Vec<u16>> = BTreeMap::new();
        for RegisteredService { service, .. } in &engines {
            let ranks = instances.entry(service.instance.clone()).or_default();
            ranks.push(service.rank.0);
        }
        ContextView {
            model_name: context.model.clone(),
            lora_name: context.lora.clone(),
            block_size: context.block_size,
            tenant_id: context.tenant.clone(),
            prefix_count: engines
                .iter()
                .map(|known| held_blocks(index, known.followed))
                .sum(),
            hash_profile: directory.profile(context).map(HashProfile::view),
            instances,
        }
    });
    let contexts: Vec<_> = contexts.collect();
    GlobalView {
        context_count: contexts.len(),
        contexts,
    }
}

pub(crate) fn health(directory: &Directory, follow: &dyn FeedFollower) -> HealthView {
    let (workers, feed_states) = (follow.workers(), feed_states(follow));
    let registered = directory.services().map(|known| known.followed);
    let configured = workers
        .iter()
        .map(|known| FollowedSource::Engine(known.worker.id()));
    let all = registered.chain(configured);
    HealthView {
        status: "ok",
        services: directory.len() + workers.len(),
        live: all
            .filter(|followed| feed_states.get(followed) == Some(&LIVE))
            .count(),
        contexts: directory.engine_contexts().count(),
    }
}
