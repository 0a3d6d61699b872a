//! What the workers of a pool say, compared with each other. Pure.

use std::collections::{BTreeMap, BTreeSet};

use routing::{Dialect, Role};

use super::observed::{Observed, Page};
use super::report::LiveCheck;
use super::target::{HandOver, PoolTarget, WorkerTarget};

/// Returns the dialect of a pool: as the configuration names it, or as the first prefill worker shows it.
pub(super) fn dialect<'o>(
    target: &PoolTarget,
    observed: impl Fn(&WorkerTarget) -> &'o Observed,
) -> Option<Dialect> {
    match target.hand_over {
        HandOver::Off => None,
        HandOver::Named(dialect) => Some(dialect),
        HandOver::Detected => shown(target, observed).map(|(_, dialect)| dialect).next(),
    }
}

/// Returns the dialects of the prefill workers that show one, with the workers' names.
fn shown<'o, 't>(
    target: &'t PoolTarget,
    observed: impl Fn(&WorkerTarget) -> &'o Observed,
) -> impl Iterator<Item = (&'t str, Dialect)> {
    let workers = target
        .workers
        .iter()
        .filter(|worker| worker.role == Role::Prefill);
    workers.filter_map(move |worker| {
        let connector = observed(worker).connector.as_ref()?;
        Some((&*worker.name, connector.dialect))
    })
}

/// The checks of a pool of several workers: that they serve the same models in the same version and hand over in the same dialect, unless the configuration tells them
/// apart.
pub(super) fn checks<'o>(
    target: &PoolTarget,
    observed: impl Fn(&WorkerTarget) -> &'o Observed,
) -> Vec<LiveCheck> {
    let mut models: Answers = BTreeMap::new();
    let mut versions: Answers = BTreeMap::new();
    for worker in &target.workers {
        let observed = observed(worker);
        // Where models are named, each worker's list is compared with its own.
        if let (true, Some(Page::Read(listed))) = (worker.models.is_empty(), &observed.models) {
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
        let message = format!("the workers serve other models: {}", told(&models));
        checks.push(LiveCheck::warn("same-models", message, hint));
    }
    if versions.len() > 1 {
        let hint = "run one version in a pool: KV events and hand-overs differ between versions";
        let message = format!("the workers run other versions: {}", told(&versions));
        checks.push(LiveCheck::warn("same-version", message, hint));
    }
    let mut dialects: Answers = BTreeMap::new();
    for (worker, dialect) in shown(target, observed) {
        dialects
            .entry(dialect.as_str().to_owned())
            .or_default()
            .push(worker);
    }
    if dialects.len() > 1 {
        let hint = "give each dialect a pool of its own";
        let message = format!(
            "the prefill workers hand over in other dialects: {}",
            told(&dialects)
        );
        checks.push(LiveCheck::warn("same-dialect", message, hint));
    }
    checks
}

/// What was said, and by whom.
type Answers<'a> = BTreeMap<String, Vec<&'a str>>;

fn told(answers: &Answers<'_>) -> String {
    let each = answers.iter().map(|(said, workers)| match &workers[..] {
        [worker] => format!("{said} ({worker})"),
        [worker, ..] => format!("{said} ({worker} and {} more)", workers.len() - 1),
        [] => said.clone(),
    });
    each.collect::<Vec<_>>().join("; ")
}
