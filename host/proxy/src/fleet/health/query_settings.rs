//! Settings of the queries that a pool sends to its workers: health, load and models.

use worker_client::Authorization;

use super::spec::{ProbeSpec, ScrapeSpec};
use crate::fleet::catalog::ModelListSpec;
use crate::fleet::pool::WorkerPool;

/// Kind of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum QueryKind {
    Health,
    Load,
    Models,
}

impl QueryKind {
    pub(super) const ALL: [Self; 3] = [Self::Health, Self::Load, Self::Models];
}

/// Settings of a pool's queries.
#[derive(Debug)]
pub(super) struct QuerySettings {
    probe: Option<ProbeSpec>,
    scrape: Option<ScrapeSpec>,
    model_list: Option<ModelListSpec>,
    authorization: Authorization,
}

impl QuerySettings {
    /// Returns the settings of a pool.
    pub(super) fn of(pool: &WorkerPool) -> Self {
        Self {
            probe: pool.checks.health.probe.clone(),
            scrape: pool.checks.scrape.clone(),
            model_list: pool.model_list.clone(),
            authorization: pool.authorization.clone(),
        }
    }

    /// Returns the queries whose settings differ from those of `before`.
    pub(super) fn changed_from(&self, before: &Self) -> Vec<QueryKind> {
        let has_other_key = self.authorization != before.authorization;
        let kinds = [
            (QueryKind::Health, self.probe != before.probe),
            (QueryKind::Load, self.scrape != before.scrape || has_other_key),
            (
                QueryKind::Models,
                self.model_list != before.model_list || has_other_key,
            ),
        ];
        let changed = kinds.into_iter().filter(|(_, is_changed)| *is_changed);
        changed.map(|(kind, _)| kind).collect()
    }
}
