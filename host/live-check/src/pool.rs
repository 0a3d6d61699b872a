//! Checks between the workers of a pool. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::observed::{Observed, Page};
use crate::report::LiveCheck;
use crate::target::{PoolTarget, WorkerTarget};

/// Returns the checks of a pool of several workers. They must serve the same models in the same version, unless the
/// configuration distinguishes them.
pub(crate) fn checks<'o>(
    target: &PoolTarget,
    observed: impl Fn(&WorkerTarget) -> &'o Observed,
) -> Vec<LiveCheck> {
    let mut models: Answers = BTreeMap::new();
    let mut versions: Answers = BTreeMap::new();
    for worker in &target.workers {
        let observed = observed(worker);
        // Where models are named, each worker's list is compared with its own.
        if let (true, Some(Page::Read(listed))) = (worker.served.models.is_empty(), &observed.models) {
            let bases = listed.iter().filter(|model| model.parent.is_none());
            let bases: BTreeSet<&str> = bases.map(|model| &*model.id).collect();
            let bases: Vec<&str> = bases.into_iter().collect();
            models.entry(bases.join(", ")).or_default().push(&worker.name);
        }
        if let Some(Page::Read(version)) = &observed.version {
            versions.entry(version.clone()).or_default().push(&worker.name);
        }
    }
    let mut checks = Vec::new();
    if models.len() > 1 {
        let hint = "name `models` of each worker, or give each model a pool of its own";
        let message = format!("the workers serve other models: {}", listed(&models));
        checks.push(LiveCheck::warn("same-models", message, hint));
    }
    if versions.len() > 1 {
        let hint = "run one version in a pool: KV events and hand-overs differ between versions";
        let message = format!("the workers run other versions: {}", listed(&versions));
        checks.push(LiveCheck::warn("same-version", message, hint));
    }
    checks
}

/// Reported values, with their workers.
type Answers<'a> = BTreeMap<String, Vec<&'a str>>;

/// Returns each value with its workers, as text.
fn listed(answers: &Answers<'_>) -> String {
    let each = answers.iter().map(|(value, workers)| match &workers[..] {
        [worker] => format!("{value} ({worker})"),
        [worker, ..] => format!("{value} ({worker} and {} more)", workers.len() - 1),
        [] => value.clone(),
    });
    each.collect::<Vec<_>>().join("; ")
}
