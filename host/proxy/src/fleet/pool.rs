//! Worker pool of one snapshot: its workers, and all the pool's state that belongs to no single request.

use std::collections::HashMap;
use std::sync::Arc;

use placement::FleetVersion;
use routing::Worker;
use worker_client::{Authorization, ConnectionsSpec};

use crate::fleet::bootstrap::Bootstrap;
use crate::fleet::catalog::{ModelCatalog, ModelListSpec};
use crate::fleet::health::{HealthSpec, ScrapeSpec};
use crate::fleet::knowledge::PoolKnowledge;
use crate::fleet::worker::WorkerHandle;

/// Workers of a pool.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// Version of the members.
    pub(crate) version: FleetVersion,
    /// Name of the pool.
    pub(crate) name: Box<str>,
    pub(crate) members: Box<[Member]>,
    /// Members by the models they serve.
    pub(crate) catalog: ModelCatalog,
    pub(crate) model_list: Option<ModelListSpec>,
    pub(crate) authorization: Authorization,
    pub(crate) connections: ConnectionsSpec,
    pub(crate) checks: CheckRules,
    /// Gaps in the cache knowledge, kept over all snapshots.
    pub(crate) knowledge: Arc<PoolKnowledge>,
}

/// Rules by which a pool's workers are queried beside the requests.
#[derive(Debug)]
pub(crate) struct CheckRules {
    pub(crate) health: HealthSpec,
    pub(crate) scrape: Option<ScrapeSpec>,
}

impl WorkerPool {
    /// Returns the members that serve a model.
    pub(crate) fn serving<'a>(&'a self, model: &str) -> impl Iterator<Item = &'a Member> + Clone + use<'a> {
        let served = self.catalog.find(model);
        let serving = self.members.iter().enumerate();
        serving.filter_map(move |(at, member)| served.has(at).then_some(member))
    }
}

/// A worker of a pool.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) worker: Arc<Worker>,
    pub(crate) link: Arc<WorkerHandle>,
    /// Bootstrap server of a prefill worker whose dialect has one.
    pub(crate) bootstrap: Option<Arc<Bootstrap>>,
}

impl Member {
    /// Returns `true` if no leg can meet another at its bootstrap server.
    pub(crate) fn is_engine_unknown(&self) -> bool {
        self.bootstrap.as_ref().is_some_and(|server| server.is_unknown())
    }
}

/// Groups the places of equal texts, in the order of the first of each.
pub(crate) fn alike<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Arc<[usize]>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of = HashMap::new();
    for (at, text) in texts.enumerate() {
        let group = *group_of.entry(text).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups.into_iter().map(Arc::from).collect()
}
