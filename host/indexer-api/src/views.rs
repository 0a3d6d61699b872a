//! `GET /services`, `/global_view` and `/health`: what is registered, and how it is.

use std::collections::{BTreeMap, HashMap};

use kv_index::SharedPrefixIndex;
use serde::Serialize;

use crate::directory::{Directory, Registered};
use crate::follow::{Follow, Followed, FollowedFeed, FollowedWorker};
use crate::profile::{HashProfile, ProfileView};

/// The state of a feed whose events are flowing.
const LIVE: &str = "live";

/// Upstream's fields, and how the feed is.
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
pub(crate) struct Services {
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
    /// Blocks held by its services, counted once for each.
    prefix_count: u64,
    hash_profile: Option<ProfileView>,
    instances: BTreeMap<Box<str>, Vec<u16>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    /// Registered ones and the router's workers.
    services: usize,
    /// Those whose events are flowing.
    live: usize,
    contexts: usize,
}

/// How each worker's feeds are: the one that is not live, where there is one.
fn states(follow: &dyn Follow) -> HashMap<Followed, &'static str> {
    let mut states = HashMap::new();
    for (followed, state) in follow.states() {
        let known = states.entry(followed).or_insert(state);
        if *known == LIVE {
            *known = state;
        }
    }
    states
}

pub(crate) fn services(directory: &Directory, follow: &dyn Follow, index: &SharedPrefixIndex) -> Services {
    let states = states(follow);
    let registered = directory
        .services()
        .map(|Registered { service, followed }| ServiceView {
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
            state: states.get(followed).copied(),
            held_blocks: held_blocks(index, *followed),
        });
    let workers = follow.workers();
    let configured = workers
        .iter()
        .flat_map(|known| worker_views(known, &states, index));
    let services: Vec<_> = registered.chain(configured).collect();
    Services {
        count: services.len(),
        services,
    }
}

/// What a store holds is counted at no engine.
fn held_blocks(index: &SharedPrefixIndex, followed: Followed) -> u64 {
    match followed {
        Followed::Engine(worker) => index.held_blocks(worker),
        Followed::Store(_) => 0,
    }
}

/// One for each model and publisher; without a model where it serves any. Its type and, before its first event, its block
/// size are not known.
fn worker_views(
    known: &FollowedWorker,
    states: &HashMap<Followed, &'static str>,
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
        state: states.get(&Followed::Engine(worker)).copied(),
        held_blocks: index.held_blocks(worker),
    };
    let of_model = |model| known.feeds.iter().map(move |feed| view(model, feed));
    models.iter().map(|model| &**model).flat_map(of_model).collect()
}

pub(crate) fn global_view(directory: &Directory, index: &SharedPrefixIndex) -> GlobalView {
    let contexts = directory.contexts().iter().map(|(context, services)| {
        let mut instances: BTreeMap<Box<str>, Vec<u16>> = BTreeMap::new();
        for Registered { service, .. } in services {
            let ranks = instances.entry(service.instance.clone()).or_default();
            ranks.push(service.rank.0);
        }
        ContextView {
            model_name: context.model.clone(),
            lora_name: context.lora.clone(),
            block_size: context.block_size,
            tenant_id: context.tenant.clone(),
            prefix_count: services
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

pub(crate) fn health(directory: &Directory, follow: &dyn Follow) -> Health {
    let (workers, states) = (follow.workers(), states(follow));
    let registered = directory.services().map(|known| known.followed);
    let configured = workers.iter().map(|known| Followed::Engine(known.worker.id()));
    let all = registered.chain(configured);
    Health {
        status: "ok",
        services: directory.len() + workers.len(),
        live: all.filter(|followed| states.get(followed) == Some(&LIVE)).count(),
        contexts: directory.contexts().len(),
    }
}
