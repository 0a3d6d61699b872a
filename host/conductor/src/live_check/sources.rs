//! Sources of workers, each queried once as the router does.

use std::fmt::Write as _;
use std::sync::Arc;

use conductor_config::DiscoveryConfig;
use observability::error_chain;
use serde::Serialize;
use worker_discovery::{EntryFault, LaidOver, SourceWorkers};
use worker_sources::{SourceSpec, query_once};

use crate::compose::NoCluster;
use crate::tasks;

/// Result of a source's query.
#[derive(Debug, Serialize)]
pub(super) struct SourceCheck {
    /// Name in the configuration.
    pub(super) source: String,
    /// Pool of its workers.
    pool: String,
    /// Kind and place.
    place: String,
    /// Names of the workers that it found.
    pub(super) workers: Vec<String>,
    /// Error of the query.
    pub(super) error: Option<String>,
    /// Entries that cannot be used.
    bad_entries: Vec<EntryFault>,
}

impl SourceCheck {
    /// Returns the result of a source for which no query can be made.
    pub(super) fn without_query(source: &DiscoveryConfig, error: &NoCluster) -> Self {
        Self {
            source: source.name.clone(),
            pool: source.pool.clone(),
            place: "kubernetes".to_owned(),
            workers: Vec::new(),
            error: Some(error_chain(error)),
            bad_entries: Vec::new(),
        }
    }
}

/// Queries all sources at once. Returns the results, and the workers that were found.
pub(super) async fn query_all(specs: Vec<SourceSpec>) -> (Vec<SourceCheck>, Vec<SourceWorkers>) {
    let query = |spec: SourceSpec| {
        tasks::spawn("source-check", async move {
            let answer = query_once(&spec).await;
            (spec, answer)
        })
    };
    let queries: Vec<_> = specs.into_iter().map(query).collect();
    let (mut checks, mut found) = (Vec::new(), Vec::new());
    for query in queries {
        // A query that panicked has no answer; its message is on stderr.
        let Ok((spec, answer)) = query.await else { continue };
        let mut check = SourceCheck {
            place: format!("{} {}", spec.kind.as_str(), spec.kind.place()),
            source: spec.name.clone(),
            pool: spec.pool.clone(),
            workers: Vec::new(),
            error: None,
            bad_entries: Vec::new(),
        };
        match answer {
            Ok(answer) => {
                check.workers = answer
                    .workers
                    .iter()
                    .map(|worker| worker.name().to_owned())
                    .collect();
                check.bad_entries = answer.faults;
                found.push(SourceWorkers {
                    source: spec.name,
                    pool: spec.pool,
                    workers: Arc::from(answer.workers),
                });
            }
            Err(error) => check.error = Some(error_chain(&error)),
        }
        checks.push(check);
    }
    (checks, found)
}

/// Returns the results as text, a line for each source, entry and worker that is left out.
pub(super) fn render(checks: &[SourceCheck], laid: &LaidOver) -> String {
    let mut out = String::new();
    for check in checks {
        let SourceCheck {
            source, pool, place, ..
        } = check;
        let _ = write!(out, "source {source} of pool {pool} ({place}): ");
        let _ = match &check.error {
            Some(error) => writeln!(out, "failed: {error}"),
            None if check.workers.is_empty() => writeln!(out, "no workers"),
            None => writeln!(
                out,
                "{} workers: {}",
                check.workers.len(),
                check.workers.join(", ")
            ),
        };
        for fault in &check.bad_entries {
            let _ = writeln!(out, "  `{}` is left out: {}", fault.entry, fault.why);
        }
        for left_out in laid.left_out.iter().filter(|left_out| left_out.source == *source) {
            let _ = writeln!(out, "  `{}` is left out: {}", left_out.url, left_out.why);
        }
    }
    out
}
