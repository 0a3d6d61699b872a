//! Configured properties of each worker that the live check compares.

use std::sync::Arc;

use conductor_config::{Config, KvEvents, ModelConfig, ModelTokenize, PoolConfig, Tokenize, WorkerConfig};
use kv_feed::CurveKeys;
use proxy::{Authorization, ConnectionsSpec};
use routing::{Dialect, Fleet, Role};
use tokenize::Model;
use wildmatch::WildMatch;

use crate::compose;
use external_resources::ExternalResources;
use kv_plane::Target;

/// One pool.
pub(super) struct PoolTarget {
    pub(super) name: String,
    pub(super) dialect: Option<Dialect>,
    pub(super) workers: Vec<WorkerTarget>,
}

/// One configured worker: one URL.
pub(super) struct WorkerTarget {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) role: Role,
    pub(super) dialect: Option<Dialect>,
    /// URL of its bootstrap server, `http://host:port`.
    pub(super) bootstrap: Option<String>,
    pub(super) health_path: String,
    /// Models and adapters it is configured to serve; no models: any.
    pub(super) models: Vec<String>,
    pub(super) adapters: Vec<String>,
    pub(super) events: KvEvents,
    /// Keys of its event publishers.
    pub(super) curve: Option<CurveKeys>,
    /// Target of discovery, which decides the trusted sources, if the worker is queried.
    pub(super) asked: Option<Target>,
    pub(super) tokenizing: Tokenizing,
    pub(super) access: ProbeAccess,
}

/// Tokenization of prompts for a worker.
pub(super) struct Tokenizing {
    /// Source of the pool, for models without a tokenizer of their own.
    pub(super) of_pool: Tokenize,
    /// The router's own tokenizers.
    pub(super) local: Arc<[LocalModel]>,
}

/// A tokenizer of the router's.
pub(super) struct LocalModel {
    /// Globs of model names.
    names: Vec<WildMatch>,
    model: Arc<Model>,
}

/// Connection to a worker.
pub(super) struct ProbeAccess {
    pub(super) connections: ConnectionsSpec,
    pub(super) authorization: Authorization,
}

impl Tokenizing {
    /// Returns the router's tokenizer of a model, the first whose names match.
    pub(super) fn local(&self, model: &str) -> Option<&Arc<Model>> {
        let is_its = |local: &&LocalModel| local.names.iter().any(|name| name.matches(model));
        self.local.iter().find(is_its).map(|local| &local.model)
    }
}

/// Returns all pools of a configuration; `resources` were read for it.
pub(super) fn pools(config: &Config, resources: &ExternalResources) -> Vec<PoolTarget> {
    let (fleet, _) = Fleet::default().next(compose::worker_specs(config));
    let specs = compose::pool_specs(config, resources, &fleet);
    let plan = compose::feed_plan(config, &resources.keys, &fleet);
    let local: Arc<[LocalModel]> = config
        .models
        .iter()
        .filter_map(|model| local_model(model, resources))
        .collect();
    let pools = config.pools.iter().zip(specs);
    pools
        .map(|(pool, spec)| {
            let dialect = pool.pd.as_ref().and_then(|pd| pd.dialect);
            let worker = |worker: &WorkerConfig| {
                let of_url = fleet
                    .workers()
                    .iter()
                    .find(|member| *member.spec().url == *worker.url);
                WorkerTarget {
                    name: worker.name.clone(),
                    url: worker.url.clone(),
                    role: worker.role,
                    dialect,
                    bootstrap: of_url
                        .and_then(|member| member.spec().bootstrap.as_deref().map(str::to_owned)),
                    health_path: health_path(pool),
                    models: worker.models.clone(),
                    adapters: worker.adapters.clone(),
                    events: worker.kv_events.clone(),
                    curve: resources.keys.curve(pool),
                    asked: plan
                        .asked
                        .iter()
                        .find(|asked| *asked.name == *worker.name)
                        .cloned(),
                    tokenizing: Tokenizing {
                        of_pool: pool.tokenize,
                        local: Arc::clone(&local),
                    },
                    access: ProbeAccess {
                        connections: spec.connections.clone(),
                        authorization: spec.authorization.clone(),
                    },
                }
            };
            PoolTarget {
                name: pool.name.clone(),
                dialect,
                workers: pool.workers.iter().map(worker).collect(),
            }
        })
        .collect()
}

fn health_path(pool: &PoolConfig) -> String {
    pool.health.path.clone().unwrap_or_else(|| "/health".to_owned())
}

fn local_model(model: &ModelConfig, resources: &ExternalResources) -> Option<LocalModel> {
    let ModelTokenize::Local(local) = &model.tokenize else {
        return None;
    };
    Some(LocalModel {
        names: model.names.iter().map(|name| WildMatch::new(name)).collect(),
        model: Arc::clone(resources.tokenizers.of(local)?),
    })
}
