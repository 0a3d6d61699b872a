//! Properties of the merge.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use routing::Role;
use worker_discovery::{DiscoveredWorker, SourceWorkers, lay_over};

use crate::{defaults, file, workers};

const FILE: &str = r#"
[[pools.plain.workers]]
name = "w001:1"
url = "http://other:1"
[[pools.plain.workers]]
url = "http://w002:1"
[pools.split]
pd = { dialect = "nixl" }
[[pools.split.workers]]
url = "http://s0:1"
role = "decode"
[[routes]]
pool = "plain"
"#;

fn source(name: &str, pool: &str, workers: Vec<DiscoveredWorker>) -> SourceWorkers {
    SourceWorkers {
        source: name.to_owned(),
        pool: pool.to_owned(),
        workers: Arc::from(workers),
    }
}

#[test]
fn the_file_comes_first_then_the_sources_in_their_order() {
    let laid = lay_over(
        &file(FILE),
        &[
            source("a", "plain", workers([1, 2, 3])),
            source("b", "plain", workers([3, 4])),
            source("c", "gone", workers([5])),
        ],
    );
    let names: Vec<_> = laid.config.pools[0]
        .workers
        .iter()
        .map(|worker| &*worker.url)
        .collect();
    assert_eq!(
        names,
        [
            "http://other:1",
            "http://w002:1",
            "http://w003:1",
            "http://w004:1"
        ]
    );
    let origins: Vec<_> = laid
        .origins
        .iter()
        .map(|(url, source)| format!("{url} {source}"))
        .collect();
    assert_eq!(origins, ["http://w003:1 a", "http://w004:1 b"]);
    let left_out: Vec<_> = laid
        .left_out
        .iter()
        .map(|left_out| format!("{} {}: {}", left_out.source, left_out.url, left_out.why))
        .collect();
    assert_eq!(
        left_out,
        [
            "a http://w001:1: another worker has its name `w001:1`",
            "a http://w002:1: the file or an earlier source has its URL",
            "b http://w003:1: the file or an earlier source has its URL",
        ]
    );
}

#[test]
fn roles_and_bootstrap_servers_fit_the_pool() {
    let with_role = |number, role| {
        let mut worker = workers([number]).remove(0);
        worker.role = role;
        worker.bootstrap = Some("http://w:8998".to_owned());
        worker
    };
    let both = vec![with_role(7, Role::Prefill), with_role(8, Role::Mixed)];
    let laid = lay_over(
        &file(FILE),
        &[source("a", "plain", both.clone()), source("b", "split", both)],
    );
    assert_eq!(laid.left_out.len(), 2, "{:?}", laid.left_out);
    assert!(laid.left_out[0].why.contains("no `pd`"));
    let split = &laid.config.pools[1].workers;
    assert_eq!((split[1].role, &split[1].bootstrap), (Role::Prefill, &None));
}

#[test]
fn the_names_of_ranks_are_unique_too() {
    let ranked = DiscoveredWorker {
        ranks: Some(2),
        ..DiscoveredWorker::at("https://w009:1", &defaults()).unwrap()
    };
    let laid = lay_over(
        &file(FILE),
        &[
            source("a", "plain", vec![ranked]),
            source("b", "plain", workers([9])),
        ],
    );
    assert_eq!((laid.origins.len(), laid.left_out.len()), (1, 1));
}

proptest! {
    #[test]
    fn every_discovered_worker_is_used_once_or_left_out_with_a_reason_and_the_files_workers_stay(
        lists in prop::collection::vec((0_usize..3, prop::collection::vec(0_u8..20, 0..20)), 0..6),
    ) {
        let file = file(FILE);
        let pools = ["plain", "split", "gone"];
        let sources: Vec<_> = (0..)
            .zip(&lists)
            .map(|(number, (pool, numbers))| {
                source(&format!("s{number}"), pools[*pool], workers(numbers.iter().copied()))
            })
            .collect();
        let laid = lay_over(&file, &sources);
        for (pool, before) in laid.config.pools.iter().zip(&file.pools) {
            prop_assert_eq!(&pool.workers[..before.workers.len()], &*before.workers);
        }
        let all = || laid.config.pools.iter().flat_map(|pool| &pool.workers);
        let urls: BTreeSet<_> = all().map(|worker| &worker.url).collect();
        let names: BTreeSet<_> = all().map(|worker| &worker.name).collect();
        prop_assert_eq!((urls.len(), names.len()), (all().count(), all().count()));
        let placed = sources.iter().filter(|source| source.pool != "gone");
        let listed: usize = placed.map(|source| source.workers.len()).sum();
        prop_assert_eq!(laid.origins.len() + laid.left_out.len(), listed);
        prop_assert_eq!(lay_over(&file, &sources), laid);
    }
}
