//! Metrics of the queries of model lists.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::base::metric_labels::WorkerResultLabel;

/// Result of a query of a worker's model list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshResult {
    /// A list other than the one before.
    Changed,
    /// The same list.
    Unchanged,
    /// The worker has no such page.
    NoPage,
    /// No answer in time, or an error.
    Failed,
    /// An answer that is no list, or one too large to keep.
    Invalid,
}

/// Every result in the order of its discriminant, with its label.
const REFRESHES: [(RefreshResult, &str); 5] = [
    (RefreshResult::Changed, "changed"),
    (RefreshResult::Unchanged, "unchanged"),
    (RefreshResult::NoPage, "no-page"),
    (RefreshResult::Failed, "failed"),
    (RefreshResult::Invalid, "invalid"),
];

/// Metric families of the catalog.
#[derive(Debug, Clone, Default)]
pub(crate) struct CatalogFamilies {
    refreshes: Family<WorkerResultLabel, Counter>,
}

/// Metric handles of one worker.
#[derive(Debug)]
pub(crate) struct CatalogMetrics([Counter; REFRESHES.len()]);

impl CatalogFamilies {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "worker_model_refreshes",
            "Queries of a worker's model list, by result",
            self.refreshes.clone(),
        );
    }

    pub(crate) fn worker(&self, name: &str) -> CatalogMetrics {
        CatalogMetrics(REFRESHES.map(|(_, result)| {
            let worker = name.to_owned();
            self.refreshes
                .get_or_create_owned(&WorkerResultLabel { worker, result })
        }))
    }

    /// Removes the metrics of a worker that is gone for good.
    pub(crate) fn forget_worker(&self, name: &str) {
        for (_, result) in REFRESHES {
            let worker = name.to_owned();
            self.refreshes.remove(&WorkerResultLabel { worker, result });
        }
    }
}

impl CatalogMetrics {
    pub(super) fn refreshed(&self, result: RefreshResult) {
        self.0[result as usize].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_stands_at_its_discriminant() {
        let mut labels = REFRESHES.iter().enumerate();
        assert!(labels.all(|(at, (result, _))| *result as usize == at));
    }
}
