//! Targets of the live check: the configured properties of each worker, from the specs of the request path.

use std::sync::Arc;

use conductor_config::{Config, ModelConfig, ModelTokenize, PoolConfig, WorkerConfig};
use external_resources::ExternalResources;
use kv_plane::FeedPlan;
use live_check::{EventsTarget, LocalModel, PoolTarget, ProbeAccess, ServedModels, Tokenizing, WorkerTarget};
use proxy::PoolSpec;
use routing::Fleet;

use crate::compose;

/// Returns all pools of a configuration; `resources` were read for it.
pub(super) fn pool_targets(config: &Config, resources: &ExternalResources) -> Vec<PoolTarget> {
    let (fleet, _) = Fleet::default().next(compose::worker_specs(config));
    let specs = compose::pool_specs(config, resources, &fleet);
    let local = config.models.iter();
    let targets = Targets {
        resources,
        plan: compose::feed_plan(config, &resources.keys, &resources.certificates, &fleet),
        fleet,
        local: local.filter_map(|model| local_model(model, resources)).collect(),
    };
    let pools = config.pools.iter().zip(&specs);
    pools.map(|(pool, spec)| targets.pool(pool, spec)).collect()
}

/// Sources of the targets.
struct Targets<'a> {
    resources: &'a ExternalResources,
    plan: FeedPlan,
    fleet: Fleet,
    local: Arc<[LocalModel]>,
}

impl Targets<'_> {
    fn pool(&self, pool: &PoolConfig, spec: &PoolSpec) -> PoolTarget {
        let workers = pool.workers.iter();
        PoolTarget {
            name: pool.name.clone(),
            dialect: pool.pd.as_ref().and_then(|pd| pd.dialect),
            workers: workers.map(|worker| self.worker(worker, pool, spec)).collect(),
        }
    }

    fn worker(&self, worker: &WorkerConfig, pool: &PoolConfig, spec: &PoolSpec) -> WorkerTarget {
        let mut members = self.fleet.workers().iter();
        let member = members.find(|member| *member.spec().url == *worker.url);
        let bootstrap = member.and_then(|member| member.spec().bootstrap.as_deref());
        let mut queried = self.plan.targets.iter();
        WorkerTarget {
            name: worker.name.clone(),
            url: worker.url.clone(),
            role: worker.role,
            dialect: pool.pd.as_ref().and_then(|pd| pd.dialect),
            bootstrap: bootstrap.map(str::to_owned),
            health_path: health_path(pool),
            served: ServedModels {
                models: worker.models.clone(),
                adapters: worker.adapters.clone(),
            },
            events: EventsTarget {
                events: worker.kv_events.clone(),
                curve: self.resources.keys.curve(pool),
                discovery: queried.find(|target| *target.name == *worker.name).cloned(),
            },
            tokenizing: Tokenizing {
                of_pool: pool.tokenize,
                local: Arc::clone(&self.local),
            },
            access: ProbeAccess {
                connections: spec.connections.clone(),
                authorization: spec.authorization.clone(),
            },
        }
    }
}

fn health_path(pool: &PoolConfig) -> String {
    pool.health.path.clone().unwrap_or_else(|| "/health".to_owned())
}

fn local_model(model: &ModelConfig, resources: &ExternalResources) -> Option<LocalModel> {
    let ModelTokenize::Local(local) = &model.tokenize else {
        return None;
    };
    let tokenizer = resources.tokenizers.of(local)?;
    Some(LocalModel::new(&model.names, Arc::clone(tokenizer)))
}
