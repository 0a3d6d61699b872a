//! Workers that come from sources outside the configuration file.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness::{Client, TestRouter, route_all};
use http::StatusCode;
use mock_engine::{MockConfig, MockEngine};
use serde_json::{Value, json};
use source_servers::{DnsReply, DnsResponder, HttpSd, KubeApi, endpoint_slice};

use crate::{chat, fast_fleet, worker_of};

/// Returns `host:port` of an engine, which is the name of a discovered worker.
fn address(engine: &MockEngine) -> String {
    engine.http_addr().to_string()
}

/// Returns Prometheus' JSON with these engines.
fn targets<'e>(engines: impl IntoIterator<Item = &'e MockEngine>) -> String {
    let targets: Vec<String> = engines.into_iter().map(address).collect();
    json!([{ "targets": targets, "labels": { "rack": "7" } }]).to_string()
}

/// Returns a configuration whose pool has no workers but those of a source.
fn config(source: &str) -> String {
    format!(
        "[pools.chat]\n[discovery.s]\npool = \"chat\"\nevery = \"100ms\"\n{source}\n{}",
        route_all("round-robin")
    )
}

fn workers(page: &Value) -> impl Iterator<Item = &Value> {
    page["pools"][0]["workers"].as_array().into_iter().flatten()
}

/// Waits until exactly these workers are in service.
async fn serves(router: &TestRouter, expected: &BTreeSet<String>) {
    let what = format!("in service: {} workers", expected.len());
    router
        .admin_shows("/status", &what, |page| {
            let healthy =
                workers(page).filter(|worker| worker["health"] == "ok" || worker["health"] == "returning");
            let names: BTreeSet<String> = healthy
                .filter_map(|worker| worker["name"].as_str().map(str::to_owned))
                .collect();
            names == *expected && workers(page).count() == expected.len()
        })
        .await;
}

fn names<'e>(engines: impl IntoIterator<Item = &'e MockEngine>) -> BTreeSet<String> {
    engines.into_iter().map(address).collect()
}

async fn source(router: &TestRouter) -> Value {
    router.admin("/admin/discovery").await.unwrap()["sources"][0].clone()
}

#[tokio::test]
async fn the_workers_of_a_file_serve_and_follow_its_edits() {
    let fleet = fast_fleet(4).await;
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("targets.json");
    let save = |engines: &[MockEngine]| {
        let fresh = path.with_extension("saving");
        std::fs::write(&fresh, targets(engines)).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
    };
    save(&fleet.engines[..3]);
    let router = TestRouter::start(&config(&format!("file-sd = \"{}\"", path.display())))
        .await
        .unwrap();
    serves(&router, &names(&fleet.engines[..3])).await;
    let of_source = |worker: &Value| worker["source"] == "discovery" && worker["discovered_by"] == "s";
    router
        .admin_shows("/status", "all are of the source", |page| {
            workers(page).all(of_source)
        })
        .await;
    assert!(names(&fleet.engines[..3]).contains(&worker_of(&router).await));

    save(&fleet.engines[1..]);
    serves(&router, &names(&fleet.engines[1..])).await;
    router
        .admin_shows("/admin/changes", "both answers are changes", |page| {
            let changes = page["changes"].as_array().unwrap().iter();
            let discovered = changes.filter(|change| change["kind"] == "workers-discovered");
            discovered.count() >= 2
        })
        .await;

    // A new place, while the router runs: the workers of the file before stay until its first answer.
    let server = HttpSd::start(&targets(&fleet.engines[..2])).unwrap();
    router
        .save_config(&config(&format!("http-sd = \"{}\"", server.url())))
        .unwrap();
    serves(&router, &names(&fleet.engines[..2])).await;
    assert_eq!(source(&router).await["kind"], "http-sd");

    // Without the source its workers are gone with the edit.
    router
        .save_config(&format!("[pools.chat]\n{}", route_all("round-robin")))
        .unwrap();
    serves(&router, &BTreeSet::new()).await;
    assert_eq!(
        router.admin("/admin/discovery").await.unwrap()["sources"],
        json!([])
    );
}

#[tokio::test]
async fn a_source_without_an_answer_adds_no_change_to_the_journal() {
    let address = harness::refused_address().unwrap();
    let router = TestRouter::start(&config(&format!("http-sd = \"http://{address}/\"")))
        .await
        .unwrap();
    let failed = "conductor_discovery_refreshes_total{source=\"s\",result=\"failed\"}";
    harness::eventually("two queries failed", || async {
        router.metric(failed).await.unwrap() >= Some(2.0)
    })
    .await;
    let changes = router.admin("/admin/changes").await.unwrap();
    let kinds = changes["changes"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|change| &change["kind"]).collect();
    assert_eq!(kinds, [&json!("config-applied")]);
}

#[tokio::test]
async fn a_pool_keeps_its_workers_while_its_source_fails_or_lists_none_by_mistake() {
    let fleet = fast_fleet(2).await;
    let server = HttpSd::start(&targets(&fleet.engines)).unwrap();
    server.require("token-of-the-tests");
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "token-of-the-tests\n").unwrap();
    let source_toml = format!(
        "http-sd = \"{}\"\nbearer = {{ file = \"{}\" }}\nconfirm = 100",
        server.url(),
        key.path().display()
    );
    let router = TestRouter::start(&config(&source_toml)).await.unwrap();
    serves(&router, &names(&fleet.engines)).await;
    for (status, body) in [(500, "{}"), (200, "{"), (200, "[]")] {
        server.set(status, body);
        let before = server.requests();
        harness::eventually("it is queried again", || async { server.requests() > before + 2 }).await;
        let page = source(&router).await;
        assert_eq!(page["workers"], 2, "{page}");
        worker_of(&router).await;
    }
    let page = source(&router).await;
    assert_eq!(
        (&page["state"], &page["doubted"]),
        (&json!("current"), &json!(2)),
        "{page}"
    );
    let failed = "conductor_discovery_refreshes_total{source=\"s\",result=\"failed\"}";
    assert!(router.metric(failed).await.unwrap() >= Some(2.0));
    assert_eq!(
        router
            .metric("conductor_discovery_workers{source=\"s\"}")
            .await
            .unwrap(),
        Some(2.0)
    );

    // A key that changes is read again, and the workers stay meanwhile.
    server.require("another");
    server.set(200, &targets(&fleet.engines));
    router
        .admin_shows("/admin/discovery", "the source fails", |page| {
            page["sources"][0]["state"] == "failing"
        })
        .await;
    assert_eq!(
        router
            .metric("conductor_discovery_failing{source=\"s\"}")
            .await
            .unwrap(),
        Some(1.0)
    );
    std::fs::write(key.path(), "another\n").unwrap();
    router
        .admin_shows("/admin/discovery", "the source recovers", |page| {
            page["sources"][0]["state"] == "current" && page["sources"][0]["doubted"] == 0
        })
        .await;
    worker_of(&router).await;
}

#[tokio::test]
async fn a_bad_worker_is_left_out_and_shown_and_the_files_workers_come_first() {
    let fleet = fast_fleet(2).await;
    let body = json!([
        { "targets": [address(&fleet.engines[0]), address(&fleet.engines[1]), "no port here"] },
        { "targets": ["127.0.0.1:9"], "labels": { "conductor_role": "prefill" } },
    ]);
    let server = HttpSd::start(&body.to_string()).unwrap();
    let own = format!(
        "[[pools.chat.workers]]\nname = \"own\"\nurl = \"{}\"\n",
        fleet.engines[0].url()
    );
    let toml = config(&format!("http-sd = \"{}\"\n{own}", server.url()));
    let router = TestRouter::start(&toml).await.unwrap();
    let expected = BTreeSet::from(["own".to_owned(), address(&fleet.engines[1])]);
    serves(&router, &expected).await;
    router
        .admin_shows("/status", "the second is of the source", |page| {
            workers(page)
                .map(|worker| &worker["source"])
                .eq([&json!("file"), &json!("discovery")])
        })
        .await;
    let first = fleet.engines[0].url();
    let expected = BTreeSet::from([Some("http://127.0.0.1:9"), Some(&*first)]);
    let page = router
        .admin_shows("/admin/discovery", "two are left out", |page| {
            let left_out = page["left_out"].as_array().into_iter().flatten();
            left_out.map(|left| left["url"].as_str()).collect::<BTreeSet<_>>() == expected
        })
        .await;
    assert_eq!(
        page["sources"][0]["bad_entries"]["first"][0]["entry"],
        "no port here"
    );
}

#[tokio::test]
async fn an_operator_drains_a_discovered_worker_until_its_source_forgets_it() {
    let fleet = fast_fleet(3).await;
    let server = HttpSd::start(&targets(&fleet.engines)).unwrap();
    let router = TestRouter::start(&config(&format!("http-sd = \"{}\"", server.url())))
        .await
        .unwrap();
    serves(&router, &names(&fleet.engines)).await;
    let drained = address(&fleet.engines[0]);
    let body = json!({ "pool": "chat", "worker": drained });
    let answer = router.admin.post("/admin/workers/drain", &body).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let page = router.admin("/status").await.unwrap();
    let of_it = |page: &Value| workers(page).find(|worker| worker["name"] == *drained).cloned();
    let worker = of_it(&page).unwrap();
    assert_eq!(
        (&worker["source"], &worker["discovered_by"]),
        (&json!("api-drain"), &json!("s"))
    );
    for _ in 0..4 {
        assert_ne!(worker_of(&router).await, drained);
    }
    server.set(200, &targets(&fleet.engines[1..]));
    // The drained worker got no requests before either: only the page shows that the source forgot it.
    harness::eventually("the drain has ended", || async {
        router.admin("/admin/config").await.unwrap()["overlays"] == json!([])
    })
    .await;
    serves(&router, &names(&fleet.engines[1..])).await;
    let page = router.admin("/admin/config").await.unwrap();
    assert_eq!(page["overlays_ended"][0]["url"], format!("http://{drained}"));
    server.set(200, &targets(&fleet.engines));
    serves(&router, &names(&fleet.engines)).await;
}

#[tokio::test]
async fn the_addresses_of_a_name_serve() {
    let fleet = fast_fleet(1).await;
    let server = DnsResponder::start().unwrap();
    server.set("engines.test", DnsReply::Addresses(vec![[127, 0, 0, 1].into()]));
    let engine = fleet.engines[0].http_addr();
    let toml = config(&format!(
        "dns = \"engines.test\"\nport = {}\ndns-server = \"{}\"",
        engine.port(),
        server.address()
    ));
    let router = TestRouter::start(&toml).await.unwrap();
    serves(&router, &names(&fleet.engines)).await;
    assert_eq!(worker_of(&router).await, engine.to_string());
}

/// Streams of requests, each of which must end well.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    /// Streams that ended, of each client.
    served: [AtomicUsize; CLIENTS],
}

impl Load {
    fn counts(&self) -> [usize; CLIENTS] {
        std::array::from_fn(|client| self.served[client].load(Ordering::Relaxed))
    }

    /// Waits until every request that was sent before has ended.
    async fn ends_requests(&self) {
        let before = self.counts();
        let all_ended = async || {
            self.counts()
                .iter()
                .zip(&before)
                .all(|(now, before)| now > before)
        };
        harness::eventually("each client has another answer", all_ended).await;
    }
}

/// Sends streams one after another until stopped.
async fn stream_on(client: Client, number: usize, load: Arc<Load>) -> Result<(), String> {
    while !load.stop.load(Ordering::Relaxed) {
        let stream = client.open("/v1/chat/completions", &chat("hello", true)).await;
        let stream = stream.map_err(|error| format!("{error:#}"))?;
        let status = stream.status;
        let whole = stream.whole().await.map_err(|error| format!("{error:#}"))?.text();
        if status != StatusCode::OK || !whole.ends_with("data: [DONE]\n\n") || whole.contains("\"error\"") {
            return Err(format!("{status}: {whole}"));
        }
        load.served[number].fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

const FLEET: usize = 100;
const BATCH: usize = 10;
const CLIENTS: usize = 6;
const PATH: &str = "/v1/chat/completions";

/// Starts engines, and adds a slice for each.
async fn roll_out(api: &KubeApi, count: usize) -> Vec<MockEngine> {
    let mut engines = Vec::with_capacity(count);
    for number in 0..count {
        let config = MockConfig {
            seed: number as u64,
            time_scale: 100.0,
            publish_events: false,
            ..MockConfig::default()
        };
        let engine = MockEngine::start(config).await.unwrap();
        api.put(endpoint_slice(
            &address(&engine),
            &["127.0.0.1"],
            engine.http_addr().port(),
        ));
        engines.push(engine);
    }
    engines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_of_a_hundred_workers_fails_no_request_and_sends_none_to_a_removed_worker() {
    let api = KubeApi::start().unwrap();
    let mut old = roll_out(&api, FLEET).await;
    let toml = config(&format!(
        "kubernetes = {{ service = \"vllm\", namespace = \"prod\", api-server = \"{}\" }}",
        api.url()
    ));
    let router = TestRouter::start(&toml).await.unwrap();
    let mut expected = names(&old);
    serves(&router, &expected).await;
    let load = Arc::<Load>::default();
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(stream_on(router.client.clone(), number, Arc::clone(&load)));
    }

    let mut new = Vec::new();
    let mut removed: Vec<(MockEngine, usize)> = Vec::new();
    while !old.is_empty() {
        let fresh = roll_out(&api, BATCH).await;
        expected.extend(names(&fresh));
        new.extend(fresh);
        serves(&router, &expected).await;
        let leaving: Vec<MockEngine> = old.drain(..BATCH).collect();
        for engine in &leaving {
            // As a pod that ends: not ready first, then gone.
            let mut slice = endpoint_slice(&address(engine), &["127.0.0.1"], engine.http_addr().port());
            slice["endpoints"][0]["conditions"] =
                json!({ "ready": false, "serving": true, "terminating": true });
            api.put(slice);
            expected.remove(&address(engine));
        }
        serves(&router, &expected).await;
        // The drain: requests that were sent before end.
        load.ends_requests().await;
        for engine in &leaving {
            assert_eq!(engine.stats().in_flight(), 0, "{}", engine.url());
            api.delete(&address(engine));
        }
        // Those of the batch before got nothing since, and stop.
        for (engine, requests) in removed.drain(..) {
            assert_eq!(engine.requests(PATH).len(), requests, "{}", engine.url());
            engine.stop().await;
        }
        removed.extend(leaving.into_iter().map(|engine| {
            let requests = engine.requests(PATH).len();
            (engine, requests)
        }));
    }
    load.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().unwrap();
    }
    for (engine, requests) in &removed {
        assert_eq!(engine.requests(PATH).len(), *requests, "{}", engine.url());
    }
    assert_eq!(names(&new), expected);
    assert!(load.counts().iter().sum::<usize>() > FLEET, "{:?}", load.counts());
    let failed = "conductor_discovery_refreshes_total{source=\"s\",result=\"failed\"}";
    assert_eq!(router.metric(failed).await.unwrap(), Some(0.0));
}
