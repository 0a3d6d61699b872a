//! HTTP service discovery.

use source_servers::HttpSd;
use worker_client::{Authorization, ConnectionPool};
use worker_discovery::target_groups;
use worker_sources::{Bearer, ServerSource, SourceKind, SourceStatus, WorkerSources};

use super::{eventually, fails, finds, report, run, spec};

const TWO: &str =
    r#"[{"targets": ["10.0.0.1:8000"], "labels": {"rack": "7"}}, {"targets": ["10.0.0.2:8000"]}]"#;

fn kind(server: &HttpSd, bearer: Bearer) -> SourceKind {
    let url = server.url();
    let base = url.trim_end_matches("/targets");
    SourceKind::HttpSd {
        server: ServerSource {
            url: base.to_owned(),
            bearer,
            ca: None,
        },
        path: "/targets".to_owned(),
    }
}

fn two() -> (HttpSd, std::sync::Arc<WorkerSources>) {
    let server = HttpSd::start(TWO).unwrap();
    let sources = run(kind(&server, Bearer::None));
    finds(&sources, &["10.0.0.1:8000", "10.0.0.2:8000"]);
    (server, sources)
}

#[test]
fn targets_are_workers_with_their_labels() {
    let (_server, sources) = two();
    let found = sources.workers([("s", "main")]);
    assert_eq!(found[0].workers[0].labels["rack"], "7");
}

#[test]
fn a_server_that_fails_keeps_the_workers_and_its_error_is_reported() {
    let (server, sources) = two();
    server.set(500, "[]");
    fails(&sources, "500");
    server.set(200, "<html>");
    fails(&sources, "not a list of target groups");
    server.set(200, &format!("[{}]", " ".repeat(100 << 10)));
    fails(&sources, "query the server");
    server.set(200, r#"[{"targets": ["x y"]}]"#);
    fails(&sources, "none of the answer's 1 entries");
    assert_eq!(report(&sources).workers, 2);
    server.set(200, TWO);
    eventually("it recovers", || report(&sources).state == SourceStatus::Current);
    assert_eq!(report(&sources).error, None);
}

#[test]
fn the_query_of_the_url_is_not_shown() {
    let server = HttpSd::start("x").unwrap();
    let SourceKind::HttpSd { mut server, .. } = kind(&server, Bearer::None) else {
        panic!("of HTTP")
    };
    // No one listens there.
    server.url = "http://127.0.0.1:9".to_owned();
    let path = "/targets?key=secret".to_owned();
    let sources = run(SourceKind::HttpSd { server, path });
    fails(&sources, "query the server");
    let report = report(&sources);
    assert_eq!(report.place, "http://127.0.0.1:9/targets");
    assert!(!report.error.unwrap().contains("secret"));
}

#[test]
fn a_bad_entry_is_reported_and_the_good_ones_are_used() {
    let (server, sources) = two();
    server.set(
        200,
        r#"[{"targets": ["10.0.0.1:8000", "10.0.0.2:x", "10.0.0.3:8000"]}]"#,
    );
    eventually("the fault is reported", || {
        report(&sources).bad_entries.count == 1
    });
    assert_eq!(report(&sources).bad_entries.first[0].entry, "10.0.0.2:x");
    finds(&sources, &["10.0.0.1:8000", "10.0.0.3:8000"]);
}

#[test]
fn an_empty_answer_empties_the_pool_only_once_it_is_repeated() {
    let (server, sources) = two();
    let before = server.requests();
    server.set(200, "[]");
    finds(&sources, &[]);
    assert!(server.requests() >= before + 3);
}

#[test]
fn a_token_is_sent_and_a_wrong_one_is_an_error() {
    let server = HttpSd::start(TWO).unwrap();
    server.require("right");
    let bearer = |token: &str| Bearer::Known(Authorization::bearer(token).unwrap());
    finds(
        &run(kind(&server, bearer("right"))),
        &["10.0.0.1:8000", "10.0.0.2:8000"],
    );
    fails(&run(kind(&server, bearer("wrong"))), "401");
}

#[test]
fn a_url_is_accepted_if_and_only_if_a_connection_can_be_opened_to_it() {
    let label = "a".repeat(63);
    let longest = format!("{}a", "a.".repeat(126));
    let others = [format!("{label}a"), format!("{longest}b"), format!("{longest}.")];
    let good = "gpu-1 a_b.c. 1-2 10.0.0.1 [::1] [::ffff:1.2.3.4] x1 1.x _";
    let bad = "10.0.0.300 01.2.3.4 1.2.3.4. gpu.7 7 a..b .a gpu-.x -a a.-b . .. - a%b";
    let good = good
        .split(' ')
        .chain([&*label, &longest])
        .map(|host| (host, true));
    let bad = bad.split(' ').chain(others.iter().map(|host| &**host));
    let defaults = spec(SourceKind::FileSd("unread".into())).defaults;
    for (host, is_good) in good.chain(bad.map(|host| (host, false))) {
        let url = format!("https://{host}:1");
        let answer = format!(r#"[{{"targets": ["{url}"]}}]"#);
        let accepted = target_groups(answer.as_bytes(), &defaults);
        assert_eq!(accepted.is_ok(), is_good, "{url}: {accepted:?}");
        let opened = ConnectionPool::new(&url);
        assert_eq!(opened.is_ok(), is_good, "{url}: {opened:?}");
    }
}
