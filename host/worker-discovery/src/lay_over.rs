//! Merge: discovered workers laid over the configuration of the file.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use conductor_config::{Config, DataParallel, PoolConfig, WorkerConfig, rank_name};
use routing::{Dialect, Role};
use serde::Serialize;

use crate::worker::DiscoveredWorker;

/// Most discovered workers of all sources together.
pub const MOST_DISCOVERED: usize = 20_000;

/// Accepted workers of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceWorkers {
    /// Name of the source.
    pub source: String,
    /// Its pool.
    pub pool: String,
    /// The workers.
    pub workers: Arc<[DiscoveredWorker]>,
}

/// Configuration with the discovered workers.
#[derive(Debug, Clone, PartialEq)]
pub struct LaidOver {
    /// Configuration of the file, with the workers at the ends of their pools.
    pub config: Config,
    /// Source of each discovered worker, by URL.
    pub origins: BTreeMap<String, String>,
    /// Workers that cannot be used.
    pub left_out: Vec<LeftOut>,
}

/// Discovered worker that is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Name of the source.
    pub source: String,
    /// URL of the worker.
    pub url: String,
    /// Reason.
    pub why: String,
}

/// URLs and names that only one worker of the fleet may have.
struct TakenNames {
    urls: HashSet<String>,
    names: HashSet<String>,
}

/// Lays the workers of all sources over a file's configuration, in the order of the sources.
///
/// The file's workers come first: a discovered one with the URL or the name of another is left out, and so is one whose
/// role its pool does not take.
#[must_use]
pub fn lay_over(file: &Config, sources: &[SourceWorkers]) -> LaidOver {
    let mut laid = LaidOver {
        config: file.clone(),
        origins: BTreeMap::new(),
        left_out: Vec::new(),
    };
    let mut taken = TakenNames::of(file);
    for source in sources {
        let mut pools = laid.config.pools.iter_mut();
        let Some(pool) = pools.find(|pool| pool.name == source.pool) else {
            continue;
        };
        for worker in &*source.workers {
            let checked = match laid.origins.len() < MOST_DISCOVERED {
                true => fit(worker, pool, &mut taken),
                false => Err(format!(
                    "all sources together have more than {MOST_DISCOVERED} workers"
                )),
            };
            match checked {
                Ok(config) => {
                    laid.origins.insert(config.url.clone(), source.source.clone());
                    pool.workers.push(config);
                }
                Err(why) => laid.left_out.push(LeftOut {
                    source: source.source.clone(),
                    url: worker.url.clone(),
                    why,
                }),
            }
        }
    }
    laid
}

/// Returns a worker as its pool takes it.
fn fit(worker: &DiscoveredWorker, pool: &PoolConfig, taken: &mut TakenNames) -> Result<WorkerConfig, String> {
    let role = worker.role;
    if role != Role::Mixed && pool.pd.is_none() {
        return Err(format!(
            "the pool `{}` has no `pd`, so it takes no {} workers",
            pool.name,
            role.as_str()
        ));
    }
    let mut config = worker.to_config();
    let dialect = pool.pd.map(|pd| pd.dialect);
    let has_bootstrap = role == Role::Prefill && dialect.flatten().is_none_or(Dialect::has_bootstrap);
    if !has_bootstrap {
        // A label of the whole group: it concerns the prefill workers of some dialects only.
        config.bootstrap = None;
    }
    taken.claim(&config)?;
    Ok(config)
}

impl TakenNames {
    fn of(file: &Config) -> Self {
        let workers = || file.pools.iter().flat_map(|pool| &pool.workers);
        Self {
            urls: workers().map(|worker| worker.url.clone()).collect(),
            names: workers().flat_map(names).collect(),
        }
    }

    fn claim(&mut self, worker: &WorkerConfig) -> Result<(), String> {
        if self.urls.contains(&worker.url) {
            return Err("the file or an earlier source has its URL".to_owned());
        }
        if let Some(name) = names(worker).find(|name| self.names.contains(name)) {
            return Err(format!("another worker has its name `{name}`"));
        }
        self.urls.insert(worker.url.clone());
        self.names.extend(names(worker));
        Ok(())
    }
}

/// Returns a worker's name, and those of its ranks.
fn names(worker: &WorkerConfig) -> impl Iterator<Item = String> {
    let ranks = worker.data_parallel.iter().flat_map(DataParallel::ranks);
    std::iter::once(worker.name.clone()).chain(ranks.map(|rank| rank_name(&worker.name, rank)))
}
