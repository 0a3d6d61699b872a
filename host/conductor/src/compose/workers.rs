//! The workers of a fleet: one for each that is configured, or for each of its data-parallel ranks.

use std::collections::BTreeMap;

use conductor_config::{Config, DataParallel, PdConfig, PoolConfig, WorkerConfig, rank_name};
use proxy::AdapterSpec;
use routing::{Dialect, DpRank, Role, WorkerSpec};

/// Returns every worker of every pool, in the order of the file.
pub(crate) fn worker_specs(config: &Config) -> Vec<WorkerSpec> {
    let mut specs = Vec::new();
    for pool in &config.pools {
        for worker in &pool.workers {
            let places = member_names(worker).zip(ranks(worker));
            specs.extend(places.map(|(name, rank)| worker_spec(worker, &name, rank, pool.pd.as_ref())));
        }
    }
    specs
}

/// Returns the LoRA adapters that a pool's workers are configured to serve, each once.
pub(super) fn adapter_specs(pool: &PoolConfig) -> Vec<AdapterSpec> {
    let mut workers_of: BTreeMap<&str, Vec<Box<str>>> = BTreeMap::new();
    for worker in &pool.workers {
        for adapter in &worker.adapters {
            let workers = workers_of.entry(adapter).or_default();
            workers.extend(member_names(worker).map(String::into_boxed_str));
        }
    }
    let specs = workers_of.into_iter();
    specs
        .map(|(name, workers)| AdapterSpec {
            name: name.into(),
            workers,
        })
        .collect()
}

/// Returns the names of the workers that a configured one stands for.
pub(super) fn member_names(worker: &WorkerConfig) -> impl Iterator<Item = String> {
    ranks(worker).map(|rank| rank.map_or_else(|| worker.name.clone(), |rank| rank_name(&worker.name, rank)))
}

/// Returns the ranks its workers are pinned to. For a single worker, returns one `None`.
fn ranks(worker: &WorkerConfig) -> impl Iterator<Item = Option<DpRank>> {
    let single = worker.data_parallel.is_none().then_some(None);
    let ranks = worker.data_parallel.iter().flat_map(DataParallel::ranks);
    single.into_iter().chain(ranks.map(Some))
}

fn worker_spec(worker: &WorkerConfig, name: &str, rank: Option<DpRank>, pd: Option<&PdConfig>) -> WorkerSpec {
    // A worker that names no model serves what it lists, and its adapters besides.
    let adapters = if worker.models.is_empty() {
        &[][..]
    } else {
        &worker.adapters[..]
    };
    let served = worker.models.iter().chain(adapters);
    WorkerSpec {
        name: name.into(),
        url: worker.url.as_str().into(),
        role: worker.role,
        models: served.map(|model| model.as_str().into()).collect(),
        weight: worker.weight,
        labels: worker
            .labels
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        rank,
        bootstrap: bootstrap(worker, pd),
    }
}

fn bootstrap(worker: &WorkerConfig, pd: Option<&PdConfig>) -> Option<Box<str>> {
    let has_one =
        worker.role == Role::Prefill && pd.is_some_and(|pd| pd.dialect.is_none_or(Dialect::has_bootstrap));
    if !has_one {
        return None;
    }
    let given = worker.bootstrap.clone();
    given.or_else(|| usual_bootstrap(&worker.url)).map(Into::into)
}

/// Returns the bootstrap server at a worker's host. Engines serve it without TLS, even if they serve requests with TLS.
fn usual_bootstrap(url: &str) -> Option<String> {
    let (_, address) = url.split_once("://")?;
    let (host, _) = address.rsplit_once(':')?;
    Some(format!("http://{host}:{}", Dialect::USUAL_BOOTSTRAP_PORT))
}
