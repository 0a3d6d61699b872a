//! Source of the active fleet for background tasks: plain values instead of the configuration snapshot.

use std::sync::Arc;

use routing::Generation;

use crate::fleet::pool::{Member, WorkerPool};

/// Pools of one configuration.
#[derive(Debug)]
pub(crate) struct ActiveFleet {
    /// Generation of the configuration.
    pub(crate) generation: Generation,
    pub(crate) pools: Vec<Arc<WorkerPool>>,
}

impl ActiveFleet {
    /// Returns every member of every pool. A worker of two pools is returned twice.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.pools.iter().flat_map(|pool| &pool.members)
    }
}

/// Source of the active fleet.
pub(crate) trait FleetSource: Send + Sync + 'static {
    /// Returns the active fleet. A caller drops it before it waits, because pools of a former configuration are freed
    /// only then.
    fn active(&self) -> ActiveFleet;

    /// Reports that a worker of the pool entered service, for the first time or again: its capacity is free.
    fn entered_service(&self, pool: &WorkerPool);
}
