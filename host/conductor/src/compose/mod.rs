//! A valid configuration, translated into what each adapter wants to be told. Pure: values in, values out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conductor_config::{
    Config, KvEvents, KvFeedConfig, PolicySource as ConfiguredSource, PoolConfig, RouteConfig, StoreConfig,
    Tokenize, WorkerConfig,
};
use kv_feed::{Endpoint, FeedSpec};
use policy_runtime::PolicySettings;
use proxy::{AssumedCache, Expectation, PoolSpec, RequestLimits, RouteSpec, TokenSource};
use routing::{Fleet, Policy, Pool, Worker, WorkerSpec};

use crate::config_source::ConfigSource;
use crate::discovery::{FeedPlan, StorePlan, Target};
use crate::policy_library::{PolicySource, WantedPolicy, policies_in};

/// Every worker of every pool, in the order of the file.
pub(crate) fn worker_specs(config: &Config) -> Vec<WorkerSpec> {
    config
        .pools
        .iter()
        .flat_map(|pool| &pool.workers)
        .map(worker_spec)
        .collect()
}

fn worker_spec(worker: &WorkerConfig) -> WorkerSpec {
    // A worker that names no model serves any; its adapters are then among them.
    let adapters = if worker.models.is_empty() {
        &[][..]
    } else {
        &worker.adapters[..]
    };
    let served = worker.models.iter().chain(adapters);
    WorkerSpec {
        name: worker.name.as_str().into(),
        url: worker.url.as_str().into(),
        role: worker.role,
        models: served.map(|model| model.as_str().into()).collect(),
        weight: worker.weight,
        labels: worker
            .labels
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        rank: None,
        bootstrap: None,
    }
}

/// The pools with their workers of the fleet, which was made from this configuration.
pub(crate) fn pool_specs(config: &Config, fleet: &Fleet) -> Vec<PoolSpec> {
    let by_name: HashMap<&str, &Arc<Worker>> = fleet
        .workers()
        .iter()
        .map(|worker| (&*worker.spec().name, worker))
        .collect();
    config
        .pools
        .iter()
        .map(|pool| pool_spec(pool, config.index.expect_for, &by_name))
        .collect()
}

fn pool_spec(pool: &PoolConfig, expect_for: Duration, by_name: &HashMap<&str, &Arc<Worker>>) -> PoolSpec {
    let workers = pool
        .workers
        .iter()
        .filter_map(|worker| by_name.get(worker.name.as_str()).copied());
    let mut adapters: Vec<Box<str>> = pool
        .workers
        .iter()
        .flat_map(|worker| &worker.adapters)
        .map(|adapter| adapter.as_str().into())
        .collect();
    adapters.sort_unstable();
    adapters.dedup();
    PoolSpec {
        pool: Pool {
            name: pool.name.as_str().into(),
            workers: workers.cloned().collect(),
        },
        tokens: match pool.tokenize {
            Tokenize::Worker => TokenSource::Worker {
                timeout: pool.tokenize_timeout,
            },
            Tokenize::Off => TokenSource::Off,
        },
        expectation: Expectation {
            until_told: expect_for,
            assumed: pool.assume_cache.map(|cache| AssumedCache {
                tokens: cache.tokens,
                block_size: cache.block_size,
                lifetime: cache.lifetime,
            }),
        },
        queue_limit: pool.queue_limit as usize,
        queue_timeout: pool.queue_timeout,
        adapters,
        authorization: proxy::Authorization::Pass,
        pd: None,
    }
}

/// A route and the policy that decides for it.
pub(crate) fn route_spec(route: &RouteConfig, policy: Arc<dyn Policy>) -> RouteSpec {
    RouteSpec {
        models: route.matches.models.clone(),
        path: route.matches.path.clone(),
        headers: route
            .matches
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        pool: route.pool.clone(),
        policy,
        prefill_policy: None,
        decode_policy: None,
    }
}

/// What bounds every request.
pub(crate) fn request_limits(config: &Config) -> RequestLimits {
    let server = &config.server;
    RequestLimits {
        body_bytes: usize::try_from(server.request_body_limit).unwrap_or(usize::MAX),
        connect_timeout: server.connect_timeout,
        first_byte_timeout: server.first_byte_timeout,
        idle_timeout: server.idle_timeout,
        attempts: server.attempts,
    }
}

/// Where the KV events of the fleet's workers are, as far as it is written down.
pub(crate) fn feed_plan(config: &Config, fleet: &Fleet) -> FeedPlan {
    let workers = config.pools.iter().flat_map(|pool| &pool.workers);
    let configured: BTreeMap<&str, &KvEvents> = workers
        .map(|worker| (worker.name.as_str(), &worker.kv_events))
        .collect();
    let mut plan = FeedPlan {
        stores: config
            .stores
            .iter()
            .map(|store| store_plan(store, config, fleet))
            .collect(),
        workers: fleet.workers().to_vec(),
        ..FeedPlan::default()
    };
    for worker in fleet.workers() {
        let spec = worker.spec();
        match configured.get(&*spec.name) {
            Some(KvEvents::At(feeds)) => plan
                .given
                .extend(feeds.iter().map(|feed| feed_spec(worker, feed))),
            Some(KvEvents::Auto) => plan.asked.push(Target {
                worker: worker.id(),
                name: spec.name.clone(),
                url: spec.url.clone(),
            }),
            Some(KvEvents::Off) | None => {}
        }
    }
    plan
}

fn store_plan(store: &StoreConfig, config: &Config, fleet: &Fleet) -> StorePlan {
    let pools = config
        .pools
        .iter()
        .filter(|pool| store.pools.contains(&pool.name));
    let names: HashSet<&str> = pools
        .flat_map(|pool| &pool.workers)
        .map(|worker| worker.name.as_str())
        .collect();
    let shares = |worker: &&Arc<Worker>| names.contains(&*worker.spec().name);
    StorePlan {
        name: store.name.as_str().into(),
        endpoint: store.endpoint.clone(),
        status: store.status.as_deref().map(Into::into),
        shards: store.shards,
        workers: fleet
            .workers()
            .iter()
            .filter(shares)
            .map(|worker| worker.id())
            .collect(),
    }
}

fn feed_spec(worker: &Worker, feed: &KvFeedConfig) -> FeedSpec {
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
    }
}

/// Every policy that is configured, named by a route, or lies in the policy folder.
pub(crate) fn wanted_policies(config: &Config, source: &ConfigSource) -> Vec<WantedPolicy> {
    let folder = policy_folder(config, source);
    let mut wanted: Vec<WantedPolicy> = config
        .policies
        .iter()
        .map(|policy| WantedPolicy {
            name: policy.name.clone(),
            source: match &policy.source {
                ConfiguredSource::Builtin(name) => PolicySource::Builtin(name.clone()),
                ConfiguredSource::File(path) => PolicySource::File(source.resolve(path)),
                ConfiguredSource::Folder => PolicySource::File(
                    folder
                        .clone()
                        .unwrap_or_default()
                        .join(format!("{}.wasm", policy.name)),
                ),
            },
            settings: PolicySettings {
                params_json: policy.params_json.clone(),
                cpu_budget: policy.limits.cpu,
                wall_limit: policy.limits.wall,
                memory_bytes: usize::try_from(policy.limits.memory).unwrap_or(usize::MAX),
            },
        })
        .collect();
    for (name, path) in folder.iter().flat_map(|folder| policies_in(folder)) {
        if wanted.iter().all(|policy| policy.name != name) {
            let source = PolicySource::File(path);
            wanted.push(WantedPolicy {
                name,
                source,
                settings: PolicySettings::default(),
            });
        }
    }
    wanted
}

/// The folder whose `.wasm` files are policies, where there is one.
pub(crate) fn policy_folder(config: &Config, source: &ConfigSource) -> Option<PathBuf> {
    config.policy_dir.as_ref().map(|folder| source.resolve(folder))
}
