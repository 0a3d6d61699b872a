//! Targets of the live check: the configured properties of each worker, from the specs of the request path.

use std::sync::Arc;

use conductor_config::{Config, ModelConfig, ModelTokenize, PoolConfig, WorkerConfig};
use external_resources::ExternalResources;
use kv_plane::FeedPlan;
use live_check::{
    EventsTarget, ModelTokens, PoolDialect, PoolTarget, ProbeAccess, ServedModels, TokenMethod, Tokenizing,
    WorkerTarget,
};
use proxy::PoolSpec;
use routing::Fleet;

use crate::compose;

/// Returns all pools of a configuration; `resources` were read for it.
pub(super) fn pool_targets(config: &Config, resources: &ExternalResources) -> Vec<PoolTarget> {
    let (fleet, _) = Fleet::default().next(compose::worker_specs(config));
    let specs = compose::pool_specs(config, resources, &fleet);
    let models = config.models.iter();
    let targets = Targets {
        resources,
        plan: compose::feed_plan(config, &resources.keys, &resources.certificates, &fleet),
        fleet,
        of_models: models
            .filter_map(|model| model_tokens(model, resources))
            .collect(),
    };
    let pools = config.pools.iter().zip(&specs);
    pools.map(|(pool, spec)| targets.pool(pool, spec)).collect()
}

/// Sources of the targets.
struct Targets<'a> {
    resources: &'a ExternalResources,
    plan: FeedPlan,
    fleet: Fleet,
    of_models: Arc<[ModelTokens]>,
}

impl Targets<'_> {
    fn pool(&self, pool: &PoolConfig, spec: &PoolSpec) -> PoolTarget {
        let workers = pool.workers.iter();
        PoolTarget {
            name: pool.name.clone(),
            dialect: PoolDialect::of(pool.pd.as_ref()),
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
            dialect: PoolDialect::of(pool.pd.as_ref()),
            bootstrap: bootstrap.map(str::to_owned),
            health_path: health_path(pool),
            served: ServedModels {
                models: worker.models.clone(),
                adapters: worker.adapters.clone(),
                list_path: pool.model_list.as_ref().map(|list| list.path.clone()),
            },
            events: EventsTarget {
                events: worker.kv_events.clone(),
                curve: self.resources.keys.curve(pool),
                discovery: queried.find(|target| *target.name == *worker.name).cloned(),
            },
            tokenizing: Tokenizing {
                of_pool: pool.tokenize,
                of_models: Arc::clone(&self.of_models),
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

fn model_tokens(model: &ModelConfig, resources: &ExternalResources) -> Option<ModelTokens> {
    let method = match &model.tokenize {
        ModelTokenize::Local(local) => TokenMethod::Local(Arc::clone(resources.tokenizers.of(local)?)),
        ModelTokenize::As(method) => TokenMethod::As(*method),
    };
    Some(ModelTokens::new(&model.names, method))
}
