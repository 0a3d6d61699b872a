//! Properties of the merge and of the accepted workers, and decoders under arbitrary bytes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod accepted;
mod decoders;
mod merge;

use conductor_config::{Config, Known};
use routing::Role;
use worker_discovery::{DiscoveredWorker, WorkerDefaults};

fn defaults() -> WorkerDefaults {
    WorkerDefaults {
        scheme: "http",
        role: Role::Mixed,
        role_label: None,
        models: Vec::new(),
        weight: 1.0,
        ranks: None,
        max_workers: 1_000,
    }
}

/// Returns the workers with these numbers, in the order of their URLs.
fn workers(numbers: impl IntoIterator<Item = u8>) -> Vec<DiscoveredWorker> {
    let at = |number: u8| DiscoveredWorker::at(&format!("w{number:03}:1"), &defaults()).unwrap();
    let mut workers: Vec<_> = numbers.into_iter().map(at).collect();
    workers.sort_by(|one, other| one.url.cmp(&other.url));
    workers.dedup_by(|one, other| one.url == other.url);
    workers
}

/// Parses a configuration.
fn file(text: &str) -> Config {
    let known = Known {
        builtins: &["p"],
        former_builtins: &[],
        default_policy: "p",
        files: &[] as &[&str; 0],
        has_admin_key: false,
    };
    match Config::parse("test", text, &known) {
        Ok(parsed) => parsed.config,
        Err(mistakes) => panic!("{mistakes}"),
    }
}
