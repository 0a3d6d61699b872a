//! Sources that change with the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use source_servers::HttpSd;
use worker_sources::{Bearer, ServerSource, SourceKind, SourceSpec, WorkerSources};

use super::{eventually, fails, finds, report, running, spec};

fn served(server: &HttpSd) -> SourceSpec {
    served_at(server, "/targets")
}

fn served_at(server: &HttpSd, path: &str) -> SourceSpec {
    let url = server.url();
    spec(SourceKind::HttpSd {
        server: ServerSource {
            url: url.trim_end_matches("/targets").to_owned(),
            bearer: Bearer::None,
            ca: None,
        },
        path: path.to_owned(),
    })
}

fn apply(sources: &WorkerSources, specs: Vec<SourceSpec>) {
    sources.apply(sources.plan(specs).unwrap());
}

#[test]
fn a_source_that_moves_keeps_its_workers_until_the_first_answer_of_the_new_place() {
    let (old, new) = (
        HttpSd::start(r#"[{"targets": ["a:1", "b:1"]}]"#),
        HttpSd::start("x"),
    );
    let (old, new) = (old.unwrap(), new.unwrap());
    let sources = running(vec![served(&old)]);
    finds(&sources, &["a:1", "b:1"]);
    apply(&sources, vec![served(&new)]);
    eventually("the new place is queried", || new.requests() > 1);
    finds(&sources, &["a:1", "b:1"]);
    new.set(200, r#"[{"targets": ["c:1"]}]"#);
    finds(&sources, &["c:1"]);
    assert_eq!(report(&sources).doubted, 0);
}

#[test]
fn the_first_answer_to_another_query_of_the_same_server_is_accepted_in_full() {
    let server = HttpSd::start(r#"[{"targets": ["a:1", "b:1"]}]"#).unwrap();
    let of_job = |job: &str| SourceSpec {
        confirm: u32::MAX,
        ..served_at(&server, &format!("/targets?job={job}"))
    };
    let sources = running(vec![of_job("a")]);
    finds(&sources, &["a:1", "b:1"]);
    server.set(500, "");
    fails(&sources, "500");
    apply(&sources, vec![of_job("b")]);
    server.set(200, r#"[{"targets": ["c:1"]}]"#);
    finds(&sources, &["c:1"]);
}

#[test]
fn a_source_that_is_removed_is_queried_no_more_and_its_workers_go_with_it() {
    let server = HttpSd::start(r#"[{"targets": ["a:1"]}]"#).unwrap();
    let sources = running(vec![served(&server)]);
    finds(&sources, &["a:1"]);
    apply(&sources, Vec::new());
    assert!(sources.workers([("s", "main")]).is_empty() && sources.report().is_empty());
    // In another pool it is another source.
    let moved = SourceSpec {
        pool: "other".to_owned(),
        ..served(&server)
    };
    apply(&sources, vec![moved]);
    eventually("its workers are there", || {
        !sources.workers([("s", "other")])[0].workers.is_empty()
    });
    assert!(sources.workers([("s", "main")]).is_empty());
}

#[test]
fn each_change_of_the_workers_is_signalled_and_counted() {
    let server = HttpSd::start(r#"[{"targets": ["a:1"]}]"#).unwrap();
    let mut registry = Registry::default();
    let sources = WorkerSources::new(&mut registry);
    let signals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&signals);
    sources.on_change(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    apply(&sources, vec![served(&server)]);
    finds(&sources, &["a:1"]);
    let before = server.requests();
    eventually("more queries", || server.requests() > before + 2);
    assert_eq!(signals.load(Ordering::Relaxed), 1, "the same answer is no change");
    server.set(200, r#"[{"targets": ["a:1", "b:x", "c:1"]}]"#);
    finds(&sources, &["a:1", "c:1"]);
    eventually("the second signal", || signals.load(Ordering::Relaxed) == 2);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "conductor_discovery_workers{source=\"s\"} 2",
        "conductor_discovery_doubted_workers{source=\"s\"} 0",
        "conductor_discovery_bad_entries{source=\"s\"} 1",
        "conductor_discovery_refreshes_total{source=\"s\",result=\"failed\"} 0",
        "conductor_discovery_last_success_timestamp_seconds{source=\"s\"} ",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
