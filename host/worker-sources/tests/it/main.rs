//! Sources against scripted servers: each kind finds its workers, and keeps them while its server fails.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its own functions too"
)]

mod changes;
mod dns;
mod file;
mod http_sd;
mod kubernetes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use routing::Role;
use worker_discovery::WorkerDefaults;
use worker_sources::{SourceKind, SourceReport, SourceSpec, SourceStatus, WorkerSources};

/// Far above what anything here takes, so that only a real failure reaches it.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

fn spec(kind: SourceKind) -> SourceSpec {
    SourceSpec {
        name: "s".to_owned(),
        pool: "main".to_owned(),
        kind,
        every: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        confirm: 3,
        max_bytes: 64 << 10,
        defaults: WorkerDefaults {
            scheme: "http",
            role: Role::Mixed,
            role_label: None,
            models: Vec::new(),
            weight: 1.0,
            ranks: None,
            max_workers: 500,
        },
    }
}

/// Runs sources.
fn running(specs: Vec<SourceSpec>) -> Arc<WorkerSources> {
    let sources = WorkerSources::new(&mut Registry::default());
    sources.apply(sources.plan(specs).unwrap());
    sources
}

fn run(kind: SourceKind) -> Arc<WorkerSources> {
    running(vec![spec(kind)])
}

/// Returns the names of the believed workers.
fn names(sources: &WorkerSources) -> Vec<String> {
    let found = sources.workers([("s", "main")]);
    let workers = found.iter().flat_map(|source| &*source.workers);
    workers.map(|worker| worker.name().to_owned()).collect()
}

fn report(sources: &WorkerSources) -> SourceReport {
    sources.report().remove(0)
}

/// Waits until `look` gives true.
#[track_caller]
fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let started = Instant::now();
    while !look() {
        assert!(started.elapsed() < DEADLINE, "never happened: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the believed workers have these names.
#[track_caller]
fn finds(sources: &WorkerSources, expected: &[&str]) {
    let started = Instant::now();
    while names(sources) != expected {
        let (found, report) = (names(sources), report(sources));
        assert!(
            started.elapsed() < DEADLINE,
            "found {found:?}, not {expected:?}: {report:?}"
        );
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the source fails with an error that contains this text.
#[track_caller]
fn fails(sources: &WorkerSources, message: &str) {
    let started = Instant::now();
    loop {
        let report = report(sources);
        let is_failing = report.state == SourceStatus::Failing;
        if is_failing && report.error.as_ref().is_some_and(|error| error.contains(message)) {
            return;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "no error says `{message}`: {report:?}"
        );
        std::thread::sleep(PAUSE);
    }
}
